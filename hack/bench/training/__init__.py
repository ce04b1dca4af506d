"""What the trainer library costs a training, measured."""
