"""torch.compile on `neuron`: Dynamo and AOTAutograd hand over graphs, each becomes one executable."""

from torch_neuronx.dynamo.metrics import get_dynamo_metrics

__all__ = ["get_dynamo_metrics"]
