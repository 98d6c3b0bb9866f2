"""Compile the native engine while heedful is installed; without a compiler everything else is still installed.

The engine is loaded through ctypes and does not link to Python, so the wheel is tagged py3-none-<platform>.
"""

import importlib.util
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# Loaded by its path: the package itself need not be importable while it is built.
spec = importlib.util.spec_from_file_location("native_build", Path(__file__).parent / "heedful/native/build.py")
native_build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native_build)


class BuildEngine(build_ext):
    """Compile the library with separate flags for each file; a failure is reported and does not stop the install."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"  # no tag of a Python version

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # an older one must not stay where a new one cannot be made
        problem = native_build.compile_engine(target)
        if problem is not None:
            print(f"heedful: the native engine was left out: {problem}", file=sys.stderr)


class PlatformWheel(bdist_wheel):
    """A wheel for one platform and every version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


sources = [path.relative_to(Path(__file__).parent.resolve()).as_posix() for path in native_build.source_files()]
setup(
    ext_modules=[Extension(f"heedful.native.{native_build.NAME}", sources, optional=True)],
    cmdclass={"build_ext": BuildEngine, "bdist_wheel": PlatformWheel},
)
