#pragma once

#include <cstddef>

namespace neuron {

constexpr size_t kMaxDevices = 64;  // logical devices in one process

}  // namespace neuron
