/** SentencePiece, compiled to WebAssembly: the same ids, texts and pieces as heedful/text/tokenizer.py. */

interface Exports {
  memory: WebAssembly.Memory;
  _initialize(): void;
  malloc(size: number): number;
  free(pointer: number): void;
  tokenizer_load(model: number, size: number): number;
  tokenizer_size(): number;
  tokenizer_encode(text: number, size: number): number;
  tokenizer_ids(): number;
  tokenizer_decode(ids: number, count: number): number;
  tokenizer_text(): number;
  tokenizer_piece(id: number): number;
  tokenizer_is_control(id: number): number;
  tokenizer_find(piece: number, size: number): number;
}

const UNKNOWN = 1;
const SPACE_MARK = "\u2581";
/** Noncharacters, one of which stands for U+2581 while a text is encoded. */
const PLACEHOLDERS = Array.from({ length: 16 }, (_, index) => 16 - index).flatMap((plane) =>
  [0xffff, 0xfffe].map((low) => String.fromCodePoint(plane * 0x10000 + low)),
);

/** One SentencePiece model. */
export class Pieces {
  readonly size: number;
  private readonly hasBytes: boolean;

  private constructor(private readonly exports: Exports) {
    this.size = exports.tokenizer_size();
    this.hasBytes = this.find("<0x00>") !== UNKNOWN;
  }

  /** Load a serialised model. `module` is tokenizer.wasm, compiled. */
  static load(module: WebAssembly.Module, model: ArrayBuffer): Pieces {
    const instance = new WebAssembly.Instance(module, { wasi_snapshot_preview1: systemCalls(() => exports.memory) });
    const exports = instance.exports as unknown as Exports;
    exports._initialize();
    const loaded = withBytes(exports, new Uint8Array(model), (pointer, size) => exports.tokenizer_load(pointer, size));
    if (loaded === 0) throw new Error("the tokenizer is not a SentencePiece model");
    return new Pieces(exports);
  }

  /** The ids of a text; lone surrogates become U+FFFD. */
  encode(text: string): number[] {
    return this.hasBytes && text.includes(SPACE_MARK) ? this.encodeWithMark(text) : this.encodePlain(text);
  }

  decode(ids: number[]): string {
    for (const id of ids) if (!(id >= 0 && id < this.size)) throw new Error(`id ${id} is not in the vocabulary of ${this.size}`);
    const bytes = new Uint8Array(Int32Array.from(ids).buffer);
    return this.read(withBytes(this.exports, bytes, (pointer) => this.exports.tokenizer_decode(pointer, ids.length)));
  }

  /** A readable piece: `▁Hello`, `</s>`, `<0xE2>` (a byte). */
  piece(id: number): string {
    if (!(id >= 0 && id < this.size)) throw new Error(`id ${id} is not in the vocabulary of ${this.size}`);
    return this.read(this.exports.tokenizer_piece(id));
  }

  /** The id of a piece; the unknown token's if there is no such piece. */
  find(piece: string): number {
    return withBytes(this.exports, new TextEncoder().encode(piece), (pointer, size) => this.exports.tokenizer_find(pointer, size));
  }

  isControl(id: number): boolean {
    return this.exports.tokenizer_is_control(id) !== 0;
  }

  private encodePlain(text: string): number[] {
    const bytes = new TextEncoder().encode(text);
    const count = withBytes(this.exports, bytes, (pointer, size) => this.exports.tokenizer_encode(pointer, size));
    if (count < 0) throw new Error("this text cannot be encoded");
    return Array.from(new Int32Array(this.exports.memory.buffer, this.exports.tokenizer_ids(), count));
  }

  /** Encode U+2581, which SentencePiece reads as a space: encode a placeholder, then replace it by the bytes. */
  private encodeWithMark(text: string): number[] {
    const placeholder = PLACEHOLDERS.find((one) => !text.includes(one) && this.find(one) === UNKNOWN);
    if (placeholder === undefined) return this.encodePlain(text);
    const ids = this.encodePlain(text.replaceAll(SPACE_MARK, placeholder));
    const [old, mark] = [this.bytesOf(placeholder), this.bytesOf(SPACE_MARK)];
    const result: number[] = [];
    for (let at = 0; at < ids.length; ) {
      const matches = old.every((id, index) => ids[at + index] === id);
      result.push(...(matches ? mark : ids.slice(at, at + 1)));
      at += matches ? old.length : 1;
    }
    return result;
  }

  private bytesOf(text: string): number[] {
    const hex = (byte: number): string => byte.toString(16).toUpperCase().padStart(2, "0");
    return Array.from(new TextEncoder().encode(text), (byte) => this.find(`<0x${hex(byte)}>`));
  }

  private read(size: number): string {
    if (size < 0) throw new Error("these ids cannot be decoded");
    return new TextDecoder().decode(new Uint8Array(this.exports.memory.buffer, this.exports.tokenizer_text(), size).slice());
  }
}

/** Copy bytes into the module's memory for one call. */
function withBytes(exports: Exports, bytes: Uint8Array, call: (pointer: number, size: number) => number): number {
  const pointer = exports.malloc(bytes.length + 8);
  if (pointer === 0) throw new Error("there is not enough memory for this text");
  new Uint8Array(exports.memory.buffer, pointer, bytes.length).set(bytes);
  try {
    return call(pointer, bytes.length);
  } finally {
    exports.free(pointer);
  }
}

/** The system calls of the C library: there are no files, no environment and no randomness. */
function systemCalls(memory: () => WebAssembly.Memory): Record<string, (...numbers: number[]) => number> {
  const zero = (...pointers: number[]): number => {
    for (const pointer of pointers) new DataView(memory().buffer).setUint32(pointer, 0, true);
    return 0;
  };
  const badFile = (): number => 8;
  return {
    environ_sizes_get: (count = 0, size = 0) => zero(count, size),
    environ_get: () => 0,
    random_get: (pointer = 0, size = 0) => {
      new Uint8Array(memory().buffer, pointer, size).fill(0);
      return 0;
    },
    proc_exit: () => {
      throw new Error("the tokenizer failed");
    },
    fd_close: badFile,
    fd_fdstat_get: badFile,
    fd_read: badFile,
    fd_seek: badFile,
    fd_write: badFile,
  };
}
