// torch.use_deterministic_algorithms(): which calls have no deterministic implementation is said in Python.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace neuron::dispatch {

// Raises or warns, in torch's words, when the mode is on and the call has none.
void alert_not_deterministic(const c10::OperatorHandle& handle, const torch::jit::Stack& stack);

}  // namespace neuron::dispatch
