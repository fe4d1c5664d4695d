#include "storage/host_memory.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

namespace neuron {
namespace {

// A container's limit; "max" or no file means none.
size_t group_limit() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  size_t bytes = 0;
  return file >> bytes ? bytes : std::numeric_limits<size_t>::max();
}

int suffix_shift(std::string_view suffix) {
  if (suffix.empty()) {
    return 0;
  }
  constexpr std::string_view kUnits = "BKMGT";
  const auto unit = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(suffix.front()))));
  const std::string_view rest = suffix.substr(1);
  const bool known = unit != std::string_view::npos && (rest.empty() || rest == "B" || rest == "iB");
  return known ? static_cast<int>(unit) * 10 : -1;
}

}  // namespace

size_t physical_memory() {
  static const size_t machine =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  static const size_t bytes = std::min(machine, group_limit());
  return bytes;
}

size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  size_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") {
      return std::min(kilobytes << 10, physical_memory());
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return physical_memory();
}

size_t parse_bytes(std::string_view text, std::string_view source) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  const int shift = end == copy.c_str() ? -1 : suffix_shift(end);
  const double bytes = number * static_cast<double>(uint64_t{1} << std::max(shift, 0));
  TORCH_CHECK_VALUE(shift >= 0 && bytes >= 1 && bytes < 0x1p62, source, "='", text,
                    "' is not a size in bytes. Use a positive number with an optional suffix K, M, G or T, as in 4G.");
  return static_cast<size_t>(bytes);
}

}  // namespace neuron
