// Switches set by the environment and changed at run time.
#pragma once

namespace neuron::runtime {

// NEURON_LAUNCH_BLOCKING=1: every op waits for its result and raises its own error. Read at every
// start; set_launch_blocking changes it later.
bool launch_blocking();
void set_launch_blocking(bool on);

// TORCH_NEURONX_RNG=cpu or debug.cpu_random(): random ops take the CPU's numbers. Every holder adds 1 and later takes
// it back, so that threads and nested blocks do not end each other's.
bool random_on_cpu();
void hold_random_on_cpu(int change);

}  // namespace neuron::runtime
