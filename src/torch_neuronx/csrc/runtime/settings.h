// Switches read from the environment.
#pragma once

namespace neuron::runtime {

// NEURON_LAUNCH_BLOCKING=1: every op waits for its result and raises its own error. Read at every
// start; set_launch_blocking changes it later.
bool launch_blocking();
void set_launch_blocking(bool on);

}  // namespace neuron::runtime
