/** Lengths and directions of the vectors of the residual stream. */

/** ‖x‖ of each row. */
export function rowNorms(values: Float32Array, width: number): Float32Array {
  const found = new Float32Array(values.length / width);
  for (let row = 0; row < found.length; ++row) {
    let sum = 0;
    for (let index = row * width; index < (row + 1) * width; ++index) sum += (values[index] ?? 0) ** 2;
    found[row] = Math.sqrt(sum);
  }
  return found;
}

/** The cosine between the rows of two matrices; 0 where a row is zero. */
export function rowCosines(left: Float32Array, right: Float32Array, width: number): Float32Array {
  const [leftNorms, rightNorms] = [rowNorms(left, width), rowNorms(right, width)];
  return leftNorms.map((norm, row) => {
    let sum = 0;
    for (let index = row * width; index < (row + 1) * width; ++index) sum += (left[index] ?? 0) * (right[index] ?? 0);
    const product = norm * (rightNorms[row] ?? 0);
    return product === 0 ? 0 : sum / product;
  });
}

/** Columns (one value a row) side by side, as a matrix. */
export function asColumns(columns: readonly Float32Array[]): Float32Array {
  const numRows = columns[0]?.length ?? 0;
  const found = new Float32Array(numRows * columns.length);
  for (const [column, values] of columns.entries()) for (let row = 0; row < numRows; ++row) found[row * columns.length + column] = values[row] ?? 0;
  return found;
}
