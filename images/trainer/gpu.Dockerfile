# The trainer for GPUs. Built from the repository's root:
#   docker build -f images/trainer/gpu.Dockerfile -t ddpjob-trainer:nvidia .                              NVIDIA
#   docker build -f images/trainer/gpu.Dockerfile -t ddpjob-trainer:amd --build-arg TORCH_INDEX=<url> .   AMD
# <url> is the package index that PyTorch's installation page gives for ROCm; the default index has the build for CUDA.

FROM docker.io/library/debian:trixie-slim
ARG TORCH=torch==2.15.0
ARG TORCH_INDEX=
# Python, and what the launcher mpirun needs on a node.
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv \
      openmpi-bin openssh-client openssh-server systemd-standalone-sysusers \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*
# torch is installed separately: another index has only torch and its dependencies.
RUN python3 -m venv /opt/ddpjob \
 && /opt/ddpjob/bin/python -m pip install --no-cache-dir --no-compile ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH" numpy \
 && /opt/ddpjob/bin/python -m pip install --no-cache-dir --no-compile 'prometheus-client>=0.20,<1' 'safetensors>=0.4.5,<1' \
 && useradd --uid 1000 --user-group --create-home ddpjob \
 && install -d -o ddpjob -g ddpjob /workspace
COPY trainer/ddpjob_trainer /opt/ddpjob/lib/python3.13/site-packages/ddpjob_trainer
# The root file system is read-only at run time: whatever is not compiled now is compiled at every start.
RUN chmod -R a+rX /opt/ddpjob/lib/python3.13/site-packages/ddpjob_trainer \
 && /opt/ddpjob/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/ddpjob/lib/python3.13/site-packages
# NVIDIA_DRIVER_CAPABILITIES is what NVIDIA's container runtime makes available in the container; nothing else reads it.
ENV PATH=/opt/ddpjob/bin:$PATH PYTHONUNBUFFERED=1 NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /workspace
USER 1000:1000
CMD ["python3"]
