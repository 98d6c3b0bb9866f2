/** What LayerNorm and BatchNorm compute of a batch of sentences: over which numbers, and what padding does to it. */

/** Activations of sentences of different lengths, filled with zeros up to the longest: shape (B, T, D). */
export interface PaddedBatch {
  values: Float32Array;
  lengths: number[];
  numTokens: number;
  numFeatures: number;
}

export function padBatch(sentences: readonly Float32Array[], numFeatures: number): PaddedBatch {
  const lengths = sentences.map(({ length }) => length / numFeatures);
  const numTokens = Math.max(0, ...lengths);
  const values = new Float32Array(sentences.length * numTokens * numFeatures);
  for (const [index, sentence] of sentences.entries()) values.set(sentence, index * numTokens * numFeatures);
  return { values, lengths, numTokens, numFeatures };
}

export interface Statistics {
  mean: Float64Array;
  /** √(variance + ε). */
  deviation: Float64Array;
  /** Over how many numbers each is computed. */
  count: number;
}

/** The mean and deviation of each token over its features; 0 for the mean of RMSNorm. */
export function tokenStatistics(values: Float32Array, numFeatures: number, epsilon: number, { centred = true } = {}): Statistics {
  const count = values.length / numFeatures;
  const [mean, deviation] = [new Float64Array(count), new Float64Array(count)];
  for (let token = 0; token < count; ++token) {
    const row = values.subarray(token * numFeatures, (token + 1) * numFeatures);
    mean[token] = centred ? row.reduce((sum, one) => sum + one, 0) / numFeatures : 0;
    deviation[token] = Math.sqrt(row.reduce((sum, one) => sum + (one - (mean[token] ?? 0)) ** 2, 0) / numFeatures + epsilon);
  }
  return { mean, deviation, count: numFeatures };
}

/** The mean and deviation of each feature over the tokens of the batch: the real ones only, or the padding too. */
export function featureStatistics(batch: PaddedBatch, epsilon: number, { padding }: { padding: boolean }): Statistics {
  const { values, lengths, numTokens, numFeatures } = batch;
  const [mean, deviation] = [new Float64Array(numFeatures), new Float64Array(numFeatures)];
  const rows: number[] = [];
  for (const [sentence, length] of lengths.entries()) {
    for (let token = 0; token < (padding ? numTokens : length); ++token) rows.push((sentence * numTokens + token) * numFeatures);
  }
  for (const row of rows) for (let feature = 0; feature < numFeatures; ++feature) mean[feature] = (mean[feature] ?? 0) + (values[row + feature] ?? 0) / rows.length;
  for (const row of rows) {
    for (let feature = 0; feature < numFeatures; ++feature) {
      deviation[feature] = (deviation[feature] ?? 0) + ((values[row + feature] ?? 0) - (mean[feature] ?? 0)) ** 2 / rows.length;
    }
  }
  for (let feature = 0; feature < numFeatures; ++feature) deviation[feature] = Math.sqrt((deviation[feature] ?? 0) + epsilon);
  return { mean, deviation, count: rows.length };
}

/** (x − mean) / deviation, with the statistics of the token or of the feature of each number. */
export function standardise(values: Float32Array, numFeatures: number, { mean, deviation }: Pick<Statistics, "mean" | "deviation">, by: "token" | "feature"): Float32Array {
  return values.map((value, index) => {
    const place = by === "token" ? Math.floor(index / numFeatures) : index % numFeatures;
    return (value - (mean[place] ?? 0)) / (deviation[place] ?? 1);
  });
}
