"""Builds and imports the simulator's extension module: once per torch version, Python and source.

The result is kept in torch's own cache of extensions (``TORCH_EXTENSIONS_DIR``, else
``~/.cache/torch_extensions``). The compiler is called directly, because torch's ``load`` also
needs ninja and waits for ever on the lock of a build that was killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

NAME = "_neuron_sim"
_SOURCE = Path(__file__).with_name("neuron_sim.cpp")


def missing() -> str:
    """Why the simulator cannot be built here, in one sentence; "" when it can."""
    if importlib.util.find_spec("torch") is None:
        return "the simulated Neuron needs torch"
    if sys.platform != "linux":
        return "the simulated Neuron is made for Linux"
    if _compiler() is None and not _target().exists():
        return "the simulated Neuron is compiled with g++, which is missing"
    return ""


def is_built() -> bool:
    """Whether ``load`` has nothing to compile."""
    return _target().exists()


def load() -> ModuleType:
    """The extension module, compiled if need be (about 20 s). Raises RuntimeError."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    reason = missing()
    if reason:
        raise RuntimeError(reason)
    target = _target()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the system releases it when its holder dies
        if not target.exists():
            _compile(target)
    spec = importlib.util.spec_from_file_location(NAME, target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module


def _compiler() -> str | None:
    return os.environ.get("CXX") or shutil.which("g++")


def _flags() -> list[str]:
    import torch

    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [
        "-O1",
        "-g0",
        "-shared",
        "-fPIC",
        "-std=c++20",
        "-DUSE_KINETO",
        "-DKINETO_NAMESPACE=libkineto",
        "-DFMT_HEADER_ONLY=1",
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        f"-DTORCH_EXTENSION_NAME={NAME}",
        f"-DNEURON_SIM_TORCH={100 * major + minor}",
    ]


def _target() -> Path:
    import torch

    cache = os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions"
    text = _SOURCE.read_bytes() + " ".join(_flags()).encode()
    digest = hashlib.sha256(text).hexdigest()[:12]
    tag = sysconfig.get_config_var("SOABI")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    folder = f"torch-{torch.__version__}-{tag}-{digest}"
    return Path(cache) / "neuron_sim" / folder / f"{NAME}{suffix}"


def _compile(target: Path) -> None:
    import torch
    from torch.utils import cpp_extension

    here = Path(torch.__file__).parent
    includes = [
        *cpp_extension.include_paths(),
        str(here / "include" / "kineto"),
        sysconfig.get_paths()["include"],
    ]
    unfinished = target.with_suffix(f".{os.getpid()}.tmp")
    command = [
        str(_compiler()),
        *_flags(),
        *(part for path in includes for part in ("-isystem", path)),
        str(_SOURCE),
        "-o",
        str(unfinished),
        f"-L{here / 'lib'}",
        *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
        f"-Wl,-rpath,{here / 'lib'}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the simulated Neuron did not compile:\n{done.stderr[-8000:]}")
    unfinished.replace(target)
