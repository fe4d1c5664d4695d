// What the machine says about its memory, and how users write sizes.
#pragma once

#include <cstddef>
#include <string_view>

namespace neuron {

size_t physical_memory();   // the machine's, or less if the control group says so
size_t available_memory();  // what could be allocated now without swapping

// "1073741824", "512K", "1.5G", "2GiB"; raises ValueError naming `source` on anything else.
size_t parse_bytes(std::string_view text, std::string_view source);

}  // namespace neuron
