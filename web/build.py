"""Build what `heedful/web/` holds, from C++ and TypeScript.

    python web/build.py            write heedful/web/
    python web/build.py --scripts  only the TypeScript and what is copied, in a second
    python web/build.py --check    build into a temporary folder and compare with heedful/web/

engine.wasm     the native engine (heedful/native/src)
engine_threads.wasm  the same for pages that are isolated from other origins, which may use several threads
relaxed_dot.ts  its products with relaxed SIMD (web/engine/relaxed_dot.cpp); in web/engine/src
tokenizer.wasm  SentencePiece, from its source distribution on PyPI, with web/engine/tokenizer
engine.js       both behind one interface, in a worker, worker.js (web/engine/src)
example/        an example page for them (web/engine/example)
translate/      the page of `heedful serve` (web/translate)
index.html      the page of `heedful see` with page.js and page.css (web/page); it uses worker.js too

The compiler is Zig's Clang, from the package `ziglang`; esbuild is among the packages of web/package.json. The results
have the same bytes on every machine.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEB, BUILT = ROOT / "web", ROOT / "heedful" / "web"
NATIVE = ROOT / "heedful" / "native" / "src"
RELAXED_DOT = WEB / "engine" / "src" / "relaxed_dot.ts"
COMMON = (
    "-target wasm32-wasi -mexec-model=reactor -std=c++17 -flto -s -fno-exceptions -fno-rtti "
    "-Wl,-z,stack-size=1048576 -Wl,--max-memory=2147483648 -Wl,--export=malloc -Wl,--export=free"
).split()
ENGINE_EXPORTS = (
    "heedful_interface_version", "heedful_use_dot", "heedful_open_memory", "heedful_translate",
    "heedful_translate_tree", "heedful_tree_nodes", "heedful_tree_free", "heedful_trace", "heedful_trace_target",
    "heedful_trace_count", "heedful_trace_tensor", "heedful_trace_free",
)  # fmt: skip
THREAD_EXPORTS = (
    "heedful_pool", "heedful_help", "heedful_help_failed", "__stack_pointer", "__tls_size", "__wasm_init_tls",
)  # fmt: skip
SHARED_MEMORY = ("-Wl,--import-memory", "-Wl,--shared-memory")

SENTENCEPIECE = "sentencepiece-0.2.1"  # the last with all its sources in the distribution
SENTENCEPIECE_SHA256 = "8138cec27c2f2282f4a34d9a016e3374cd40e5c6e9cb335063db66a0a3b71fad"
TOKENIZER_EXPORTS = ("load", "size", "encode", "ids", "decode", "text", "piece", "is_control", "find")
TOKENIZER_SOURCES = (
    "sentencepiece_processor", "model_interface", "model_factory", "bpe_model", "unigram_model", "char_model",
    "word_model", "normalizer", "util", "error", "builtin_pb/sentencepiece.pb", "builtin_pb/sentencepiece_model.pb",
)  # fmt: skip


def run(command: list[str], folder: Path) -> None:
    """Run a command, and stop with its messages if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"web/build.py: {' '.join(command[:4])} failed:\n{done.stderr or done.stdout}")


def compile_wasm(arguments: list[str], folder: Path, target: Path) -> None:
    """Compile and link C++ for WebAssembly, in `folder`."""
    with tempfile.TemporaryDirectory() as output:
        path = Path(output, target.name)
        run([sys.executable, "-m", "ziglang", "c++", *COMMON, *arguments, "-o", str(path)], folder)
        target.write_bytes(path.read_bytes())


def build_engine(target: Path, *, threads: bool = False) -> None:
    """Compile the native engine with its kernels for WebAssembly; with `threads`, for a memory that workers share."""
    others = {path.name for path in NATIVE.glob("kernels_*.cpp")} - {"kernels_wasm.cpp"}
    sources = sorted({path.name for path in NATIVE.glob("*.cpp")} - others)
    flags = "-O3 -msimd128 -fno-math-errno -ffp-contract=off -Wno-psabi -Wl,--export-table -Wl,--growable-table".split()
    exports = ENGINE_EXPORTS
    if threads:
        flags += [*SHARED_MEMORY, "-mcpu=generic+simd128+atomics+bulk_memory", "-Wl,--initial-memory=4194304"]
        exports += THREAD_EXPORTS
    compile_wasm([*flags, *(f"-Wl,--export={name}" for name in exports), *sources], NATIVE, target)


def relaxed_dot_modules() -> str:
    """The source of relaxed_dot.ts: relaxed_dot.cpp compiled for both kinds of memory, in base64."""
    flags = "-target wasm32-freestanding -nostdlib -std=c++17 -O3 -s -fno-exceptions -fno-rtti".split()
    flags += "-Wl,--no-entry -Wl,--import-memory -Wl,--export=dot -Wl,-z,stack-size=16".split()
    shared = [*SHARED_MEMORY, "-Wl,--max-memory=2147483648", "-mcpu=generic+simd128+relaxed_simd+atomics+bulk_memory"]
    text = "/** Written by web/build.py from relaxed_dot.cpp. */\n"
    for name, more in (("RELAXED_DOT", ["-mcpu=generic+simd128+relaxed_simd"]), ("SHARED_RELAXED_DOT", shared)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "relaxed_dot.wasm")
            command = [sys.executable, "-m", "ziglang", "c++", *flags, *more, "relaxed_dot.cpp", "-o", str(path)]
            run(command, WEB / "engine")
            text += f'export const {name} =\n  "{base64.b64encode(path.read_bytes()).decode()}";\n'
    return text


def build_tokenizer(target: Path) -> None:
    """Compile the part of SentencePiece that encodes and decodes."""
    with tempfile.TemporaryDirectory() as folder:
        name, version = SENTENCEPIECE.rsplit("-", 1)
        download = "pip download --quiet --no-binary :all: --no-deps".split()
        run([sys.executable, "-m", *download, f"{name}=={version}", "--dest", folder], ROOT)
        archive = Path(folder, f"{SENTENCEPIECE}.tar.gz")
        if hashlib.sha256(archive.read_bytes()).hexdigest() != SENTENCEPIECE_SHA256:
            sys.exit(f"web/build.py: {archive.name} has another checksum than expected.")
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        library = Path(folder, SENTENCEPIECE, "sentencepiece")
        definitions = (
            '#define VERSION "0.2.1"\n#define PACKAGE "sentencepiece"\n#define PACKAGE_STRING "sentencepiece"\n'
        )
        (library / "config.h").write_text(definitions)
        trie = library / "third_party" / "darts_clone" / "darts.h"
        trie.write_text(trie.read_text().replace("throw()", "noexcept"))
        for source in (WEB / "engine" / "tokenizer").iterdir():
            shutil.copy(source, library / "src")
        protobuf = sorted(path.name for path in (library / "third_party" / "protobuf-lite").glob("*.cc"))
        sources = [f"{name}.cc" for name in TOKENIZER_SOURCES]
        sources += [f"../third_party/protobuf-lite/{name}" for name in protobuf if name != "io_win32.cc"]
        includes = (".", "..", "../third_party/protobuf-lite", "builtin_pb", "../third_party", "../..")
        flags = ["-Os", "-w", "-DNDEBUG", "-D_USE_INTERNAL_STRING_VIEW", "-DGOOGLE_PROTOBUF_NO_RTTI"]
        flags += ["-DHAVE_PTHREAD=0", '-DINSTALL_DATADIR=""', "-include", "standard_library.h"]
        flags += [f"-Wl,--export=tokenizer_{name}" for name in TOKENIZER_EXPORTS]
        arguments = [*flags, *(f"-I{path}" for path in includes), "tokenizer.cpp", *sources]
        compile_wasm(arguments, library / "src", target)


def build_scripts(folder: Path) -> None:
    """Bundle the TypeScript."""
    esbuild = WEB / "node_modules" / ".bin" / "esbuild"
    if not esbuild.exists():
        sys.exit("web/build.py: the packages are missing; run: cd web && npm ci")
    options = "--bundle --minify --format=esm --target=es2022 --charset=utf8 --legal-comments=none".split()
    run([str(esbuild), "engine/src/index.ts", *options, f"--outfile={folder / 'engine.js'}"], WEB)
    run([str(esbuild), "engine/src/worker.ts", *options, f"--outfile={folder / 'worker.js'}"], WEB)
    run([str(esbuild), "page/main.tsx", *options, "--jsx=automatic", f"--outfile={folder / 'page.js'}"], WEB)
    target = folder / "translate" / "translate.js"
    run([str(esbuild), "translate/main.tsx", *options, "--jsx=automatic", f"--outfile={target}"], WEB)


def copy_static_files(folder: Path) -> None:
    """Copy the example page, and what is not built of the other pages."""
    shutil.copytree(WEB / "engine" / "example", folder / "example", dirs_exist_ok=True)
    for name in ("index.html", "icon.svg"):
        shutil.copyfile(WEB / "page" / name, folder / name)
    shutil.copyfile(WEB / "translate" / "index.html", folder / "translate" / "index.html")
    shutil.copyfile(WEB / "page" / "icon.svg", folder / "translate" / "icon.svg")


def build(folder: Path) -> None:
    """Build everything."""
    build_engine(folder / "engine.wasm")
    build_engine(folder / "engine_threads.wasm", threads=True)
    build_tokenizer(folder / "tokenizer.wasm")
    build_scripts(folder)
    copy_static_files(folder)


def same_bytes(path: Path, other: Path) -> bool:
    """True if both files exist and are equal."""
    return other.is_file() and path.read_bytes() == other.read_bytes()


def main() -> None:
    """Build, or compare with what is there."""
    if sys.argv[1:] == ["--check"]:
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder))
            stale = [
                path.name
                for path in Path(folder).rglob("*")
                if path.is_file() and not same_bytes(path, BUILT / path.relative_to(folder))
            ]
        if RELAXED_DOT.read_text() != relaxed_dot_modules():
            stale.append(RELAXED_DOT.name)
        if stale:
            sys.exit(f"web/build.py: {', '.join(sorted(stale))} differ from the source; run python web/build.py")
    elif sys.argv[1:] == ["--scripts"]:
        build_scripts(BUILT)
        copy_static_files(BUILT)
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        BUILT.mkdir(exist_ok=True)
        RELAXED_DOT.write_text(relaxed_dot_modules())
        build(BUILT)


if __name__ == "__main__":
    main()
