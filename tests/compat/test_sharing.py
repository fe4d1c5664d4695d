"""Between processes, neuron tensors are copied, and nothing pretends otherwise."""

import pytest
import torch


def test_share_memory_is_refused():
    with pytest.raises(RuntimeError, match=r"Share a CPU tensor \(tensor.cpu\(\).share_memory_\(\)\)"):
        torch.empty(2, device="neuron").share_memory_()
    assert torch.empty(2).share_memory_().is_shared()


def test_a_queue_copies(python, tmp_path):
    script = tmp_path / "queue_script.py"
    script.write_text(
        """
import torch, torch_neuronx
import torch.multiprocessing as mp

def receive(queue, answers):
    tensor, parameter = queue.get()
    answers.put((tensor + 1).tolist())
    answers.put((str(parameter.device), type(parameter).__name__, parameter.requires_grad))
    queue.get()  # the answer's memory is fetched from this process, so it has to live until then

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(queue, answers))
    child.start()
    queue.put((torch.ones(3, device="neuron"), torch.nn.Parameter(torch.ones(1, device="neuron"))))
    print("answer", answers.get(timeout=60), answers.get(timeout=60))
    queue.put("done")
    child.join()
"""
    )
    out = python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert "answer [2.0, 2.0, 2.0] ('neuron:0', 'Parameter', True)" in out


def test_non_leaf_tensors_are_refused():
    import io
    from multiprocessing.reduction import ForkingPickler

    tensor = torch.ones(1, device="neuron", requires_grad=True) * 2
    with pytest.raises(RuntimeError, match=r"Send tensor.detach\(\)"):
        ForkingPickler(io.BytesIO()).dump(tensor)
