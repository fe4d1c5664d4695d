// One background thread that waits for work nobody else waits for, so that polling and timing work.
#pragma once

#include <memory>
#include <vector>

#include "device/token.h"

namespace neuron {

// Marks the work done as it finishes, in the background. Starts the thread at first use.
void watch(const std::vector<std::shared_ptr<Token>>& work);

// True when all of it is done; otherwise sees to it that a later call will find out.
bool all_done(const std::vector<std::shared_ptr<Token>>& work);

// Stops the thread; called with the GIL held before the interpreter goes away.
void stop_watching();

}  // namespace neuron
