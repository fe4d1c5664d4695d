#include "storage/ledger.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "max_devices.h"
#include "storage/device_buffer.h"
#include "storage/host_memory.h"

#include <c10/util/Exception.h>

namespace neuron::ledger {
namespace {

using c10::CachingAllocator::format_size;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

constexpr size_t kLargeBuffer = size_t{1} << 20;         // AWS's border between the small and the large pool
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 56;  // not canonical: nothing can be mapped there

// Of all accounts: one lock, so that a fork can hold it.
std::mutex mutex;

struct Account {
  StatArray count;
  StatArray bytes;      // rounded up to the alignment
  StatArray requested;  // as asked for
  int64_t out_of_memory = 0;
  int64_t retries = 0;
  size_t cap = 0;  // 0: not read yet
  DeviceBuffer* first = nullptr;
};

// Leaked on purpose: buffers may be freed by static destructors.
std::array<Account, kMaxDevices>& accounts() {
  static auto* all = new std::array<Account, kMaxDevices>();
  return *all;
}

Account& account(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && static_cast<size_t>(device) < kMaxDevices, "neuron: invalid device ordinal ",
              static_cast<int>(device), ": a process has at most ", kMaxDevices, " neuron devices.");
  return accounts()[static_cast<size_t>(device)];
}

size_t rounded(size_t nbytes) { return (nbytes + kAlignment - 1) / kAlignment * kAlignment; }

uintptr_t next_address(size_t nbytes) {
  static std::atomic<uintptr_t> next{kFirstAddress};
  return next.fetch_add(std::max(rounded(nbytes), kAlignment), std::memory_order_relaxed);
}

size_t default_cap() {
  constexpr const char* kVariable = "TORCH_NEURONX_HOST_MEMORY_LIMIT";
  const char* text = std::getenv(kVariable);
  return text == nullptr || *text == '\0' ? physical_memory() : parse_bytes(text, kVariable);
}

size_t cap_of(Account& account) {
  if (account.cap == 0) {
    account.cap = default_cap();
  }
  return account.cap;
}

template <typename Change>
void change(StatArray& stats, bool large, Change&& change) {
  change(stats[static_cast<size_t>(StatType::AGGREGATE)]);
  change(stats[static_cast<size_t>(large ? StatType::LARGE_POOL : StatType::SMALL_POOL)]);
}

int64_t held(const Account& account) { return account.bytes[static_cast<size_t>(StatType::AGGREGATE)].current; }

[[noreturn]] void refuse(Account& account, size_t nbytes, c10::DeviceIndex device) {
  ++account.out_of_memory;
  ++account.retries;
  const auto in_use = static_cast<size_t>(held(account));
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(nbytes), in_use, in_use,
                                   c10::Device(c10::DeviceType::PrivateUse1, device));
  TORCH_CHECK_WITH(OutOfMemoryError, false, "neuron out of memory. Tried to allocate ", format_size(nbytes),
                   " (requested_size=", nbytes, ") on neuron:", static_cast<int>(device), ", which may hold ",
                   format_size(account.cap), " (limit=", account.cap, ") and has ", format_size(in_use),
                   " in use (in_use=", in_use,
                   "). Free tensors, use a smaller batch or a smaller dtype, or raise the limit with "
                   "TORCH_NEURONX_HOST_MEMORY_LIMIT.");
  std::abort();
}

void count(Account& account, const DeviceBuffer& buffer) {
  const bool large = buffer.nbytes >= kLargeBuffer;
  change(account.count, large, [](Stat& stat) { stat.increase(1); });
  change(account.bytes, large, [&](Stat& stat) { stat.increase(rounded(buffer.nbytes)); });
  change(account.requested, large, [&](Stat& stat) { stat.increase(buffer.nbytes); });
}

void discount(Account& account, const DeviceBuffer& buffer) {
  const bool large = buffer.nbytes >= kLargeBuffer;
  change(account.count, large, [](Stat& stat) { stat.decrease(1); });
  change(account.bytes, large, [&](Stat& stat) { stat.decrease(rounded(buffer.nbytes)); });
  change(account.requested, large, [&](Stat& stat) { stat.decrease(buffer.nbytes); });
}

void link(Account& account, DeviceBuffer& buffer) {
  buffer.next = account.first;
  if (account.first != nullptr) {
    account.first->previous = &buffer;
  }
  account.first = &buffer;
}

void unlink(Account& account, DeviceBuffer& buffer) {
  (buffer.previous != nullptr ? buffer.previous->next : account.first) = buffer.next;
  if (buffer.next != nullptr) {
    buffer.next->previous = buffer.previous;
  }
}

void report(const DeviceBuffer& buffer, int64_t difference, int64_t in_use) {
  if (c10::memoryProfilingEnabled()) {
    c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(buffer.address), difference, static_cast<size_t>(in_use),
                                     static_cast<size_t>(in_use),
                                     c10::Device(c10::DeviceType::PrivateUse1, buffer.device));
  }
}

// A child of fork may free tensors: it must not find the lock held by a thread it does not have.
[[maybe_unused]] const int fork_handlers =
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });

}  // namespace

void open(DeviceBuffer& buffer) {
  Account& mine = account(buffer.device);
  int64_t in_use = 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    const size_t cap = cap_of(mine);
    if (buffer.nbytes > cap || rounded(buffer.nbytes) > cap - std::min(cap, static_cast<size_t>(held(mine)))) {
      refuse(mine, buffer.nbytes, buffer.device);
    }
    buffer.address = next_address(buffer.nbytes);
    count(mine, buffer);
    link(mine, buffer);
    in_use = held(mine);
  }
  report(buffer, static_cast<int64_t>(buffer.nbytes), in_use);
}

void close(DeviceBuffer& buffer) noexcept {
  Account& mine = accounts()[static_cast<size_t>(buffer.device)];
  int64_t in_use = 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    discount(mine, buffer);
    unlink(mine, buffer);
    in_use = held(mine);
  }
  report(buffer, -static_cast<int64_t>(buffer.nbytes), in_use);
}

DeviceBuffer* find(uintptr_t address) {
  std::lock_guard<std::mutex> lock(mutex);
  for (Account& each : accounts()) {
    for (DeviceBuffer* buffer = each.first; buffer != nullptr; buffer = buffer->next) {
      if (address >= buffer->address && address < buffer->address + std::max(buffer->nbytes, kAlignment)) {
        return buffer;
      }
    }
  }
  return nullptr;
}

std::vector<LiveBuffer> live_buffers() {
  std::vector<LiveBuffer> all;
  std::lock_guard<std::mutex> lock(mutex);
  for (Account& each : accounts()) {
    for (DeviceBuffer* buffer = each.first; buffer != nullptr; buffer = buffer->next) {
      all.push_back({buffer->device, buffer->address, buffer->nbytes, buffer->handle != nullptr});
    }
  }
  return all;
}

Stats stats(c10::DeviceIndex device) {
  Account& mine = account(device);
  std::lock_guard<std::mutex> lock(mutex);
  Stats all;
  all.allocation = all.segment = all.active = mine.count;
  all.allocated_bytes = all.reserved_bytes = all.active_bytes = mine.bytes;
  all.requested_bytes = mine.requested;
  all.num_ooms = mine.out_of_memory;
  all.num_alloc_retries = mine.retries;
  const Stat& buffers = mine.count[static_cast<size_t>(StatType::AGGREGATE)];
  all.num_device_alloc = buffers.allocated;
  all.num_device_free = buffers.freed;
  return all;
}

void reset_peak(c10::DeviceIndex device) {
  Account& mine = account(device);
  std::lock_guard<std::mutex> lock(mutex);
  for (StatArray* each : {&mine.count, &mine.bytes, &mine.requested}) {
    std::for_each(each->begin(), each->end(), [](Stat& stat) { stat.reset_peak(); });
  }
}

void reset_accumulated(c10::DeviceIndex device) {
  Account& mine = account(device);
  std::lock_guard<std::mutex> lock(mutex);
  for (StatArray* each : {&mine.count, &mine.bytes, &mine.requested}) {
    std::for_each(each->begin(), each->end(), [](Stat& stat) { stat.reset_accumulated(); });
  }
  mine.out_of_memory = 0;
  mine.retries = 0;
}

void set_fraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK_VALUE(fraction > 0 && fraction <= 1, "set_per_process_memory_fraction(", fraction,
                    "): a fraction is above 0 and at most 1. Give the share of the device's memory to use.");
  Account& mine = account(device);
  std::lock_guard<std::mutex> lock(mutex);
  mine.cap = std::max<size_t>(1, static_cast<size_t>(fraction * static_cast<double>(default_cap())));
}

std::pair<size_t, size_t> free_and_total(c10::DeviceIndex device) {
  Account& mine = account(device);
  const size_t available = available_memory();
  std::lock_guard<std::mutex> lock(mutex);
  const size_t total = cap_of(mine);
  const size_t left = total - std::min(total, static_cast<size_t>(held(mine)));
  return {std::min(left, available), total};
}

}  // namespace neuron::ledger
