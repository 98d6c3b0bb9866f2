/** Reading and writing the memory of engine.wasm, in the layout of C structures for 32-bit WebAssembly. */

/** The exported functions that are used; heedful/native/src/c_api.h describes them. */
export interface Exports {
  memory: WebAssembly.Memory;
  __indirect_function_table: WebAssembly.Table;
  _initialize(): void;
  malloc(size: number): number;
  free(pointer: number): void;
  heedful_interface_version(): number;
  heedful_use_dot(place: number): void;
  heedful_pool(engine: number): number;
  heedful_help(pool: number, thread: number): void;
  heedful_help_failed(pool: number): void;
  __stack_pointer: WebAssembly.Global<"i32">;
  __tls_size: WebAssembly.Global<"i32">;
  __wasm_init_tls(place: number): void;
  heedful_open_memory(contents: number, size: bigint, threads: number, kernels: number, message: number, messageSize: bigint): number;
  heedful_translate(engine: number, settings: number, sentences: number, results: number, message: number, messageSize: bigint): number;
  heedful_translate_tree(engine: number, settings: number, sentences: number, results: number, message: number, messageSize: bigint): number;
  heedful_tree_nodes(tree: number, nodes: number): bigint;
  heedful_tree_free(tree: number): void;
  heedful_trace(engine: number, settings: number, request: number, message: number, messageSize: bigint): number;
  heedful_trace_target(trace: number, tokens: number): bigint;
  heedful_trace_count(trace: number): bigint;
  heedful_trace_tensor(trace: number, index: bigint, tensor: number): void;
  heedful_trace_free(trace: number): void;
}

/** A field of a C structure. */
export type Field = ["int32" | "int64" | "pointer" | "float" | "double", number];

const SIZES = { int32: 4, pointer: 4, float: 4, int64: 8, double: 8 };

export class Memory {
  private allocated: number[] = [];

  private constructor(readonly exports: Exports) {}

  /** An instance of engine.wasm, or of engine_threads.wasm, which needs a memory. */
  static instantiate(module: WebAssembly.Module, shared?: WebAssembly.Memory): Memory {
    const exports = instantiate(module, shared);
    exports._initialize();
    return new Memory(exports);
  }

  /** The number of bytes of the whole memory. */
  get size(): number {
    return this.exports.memory.buffer.byteLength;
  }

  /** Memory until `free`. */
  allocate(size: number): number {
    const pointer = this.exports.malloc(Math.max(size, 8));
    if (pointer === 0) throw new Error("there is not enough memory for the model");
    this.allocated.push(pointer);
    return pointer;
  }

  /** Free everything that was allocated. */
  free(): void {
    for (const pointer of this.allocated) this.exports.free(pointer);
    this.allocated = [];
  }

  bytes(values: Uint8Array): number {
    const pointer = this.allocate(values.length);
    new Uint8Array(this.exports.memory.buffer, pointer, values.length).set(values);
    return pointer;
  }

  int32s(values: number[]): number {
    return this.bytes(new Uint8Array(Int32Array.from(values).buffer));
  }

  int64s(values: number[]): number {
    return this.bytes(new Uint8Array(BigInt64Array.from(values, BigInt).buffer));
  }

  /** Text in UTF-8 that ends in zero. */
  text(value: string): number {
    return this.bytes(new TextEncoder().encode(`${value}\0`));
  }

  struct(fields: Field[]): number {
    return this.structs([fields]);
  }

  /** An array of structures of the same type. */
  structs(all: Field[][]): number {
    const size = all.length > 0 ? structSize(all[0] ?? []) : 0;
    const pointer = this.allocate(size * all.length);
    const view = new DataView(this.exports.memory.buffer, pointer, size * all.length);
    for (const [index, fields] of all.entries()) {
      let offset = index * size;
      for (const [type, value] of fields) {
        offset = align(offset, SIZES[type]);
        if (type === "int64") view.setBigInt64(offset, BigInt(value), true);
        else if (type === "double") view.setFloat64(offset, value, true);
        else if (type === "float") view.setFloat32(offset, value, true);
        else view.setInt32(offset, value, true);
        offset += SIZES[type];
      }
    }
    return pointer;
  }

  readInt32s(pointer: number, count: number): number[] {
    return Array.from(new Int32Array(this.exports.memory.buffer, pointer, count));
  }

  readInt64s(pointer: number, count: number): number[] {
    return Array.from(new BigInt64Array(this.exports.memory.buffer, pointer, count), Number);
  }

  readPointer(pointer: number): number {
    return new Uint32Array(this.exports.memory.buffer, pointer, 1)[0] ?? 0;
  }

  /** A copy of floats. */
  readFloats(pointer: number, count: number): Float32Array {
    return this.viewFloats(pointer, count).slice();
  }

  /** Floats in the memory, until the next call of the engine. */
  viewFloats(pointer: number, count: number): Float32Array {
    return new Float32Array(this.exports.memory.buffer, pointer, count);
  }

  readText(pointer: number): string {
    const bytes = new Uint8Array(this.exports.memory.buffer);
    return new TextDecoder().decode(bytes.slice(pointer, bytes.indexOf(0, pointer)));
  }
}

/** The memory of engine_threads.wasm; its limits are those of the module (web/build.py). */
export function sharedMemory(): WebAssembly.Memory {
  return new WebAssembly.Memory({ initial: 64, maximum: 32768, shared: true });
}

/** Instantiate the engine. It has no access to anything outside its memory; its errors become exceptions. */
export function instantiate(module: WebAssembly.Module, shared?: WebAssembly.Memory): Exports {
  const unavailable = (): number => 8; // EBADF: there are no files
  const instance = new WebAssembly.Instance(module, {
    ...(shared === undefined ? {} : { env: { memory: shared } }),
    wasi_snapshot_preview1: { fd_close: unavailable, fd_seek: unavailable, fd_write: unavailable },
    heedful: {
      fail: (message: number, length: number): never => {
        throw new Error(new TextDecoder().decode(new Uint8Array(exports.memory.buffer, message, length).slice()));
      },
    },
  });
  const exports = { memory: shared, ...instance.exports } as unknown as Exports;
  return exports;
}

function align(offset: number, size: number): number {
  return Math.ceil(offset / size) * size;
}

function structSize(fields: Field[]): number {
  const end = fields.reduce((offset, [type]) => align(offset, SIZES[type]) + SIZES[type], 0);
  return align(end, Math.max(...fields.map(([type]) => SIZES[type])));
}
