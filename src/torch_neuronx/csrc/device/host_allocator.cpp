#include "device/host_allocator.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "storage/ledger.h"

namespace neuron {
namespace {

void free_block(void* context);

class PinnedAllocator final : public at::HostAllocator {
 public:
  at::DataPtr allocate(size_t nbytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (nbytes == 0) {
      return {nullptr, cpu};
    }
    const size_t size = std::bit_ceil(std::max(nbytes, ledger::kAlignment));
    std::lock_guard<std::mutex> lock(mutex_);
    void* block = take_cached(size);
    block = block != nullptr ? block : new_block(size, nbytes);
    blocks_.at(block).in_use = true;
    stats_.active_requests.increase(1);
    stats_.active_bytes.increase(size);
    return {block, block, &free_block, cpu};
  }

  void free(void* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    Block& freed = blocks_.at(block);
    freed.in_use = false;
    cached_[freed.size].push_back(block);
    stats_.active_requests.decrease(1);
    stats_.active_bytes.decrease(freed.size);
  }

  // Anywhere inside a block that is in use: views of pinned tensors are pinned.
  bool holds(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto after = blocks_.upper_bound(const_cast<void*>(data));
    if (after == blocks_.begin()) {
      return false;
    }
    const auto& [start, block] = *std::prev(after);
    return block.in_use && static_cast<const char*>(data) < static_cast<const char*>(start) + block.size;
  }

  // The runtime copies what it imports before the call returns: no stream reads the block later.
  bool record_event(void* data, void*, c10::Stream) override { return holds(data); }

  void empty_cache() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [size, blocks] : cached_) {
      for (void* block : blocks) {
        stats_.allocations.decrease(1);
        stats_.allocated_bytes.decrease(size);
        ++stats_.num_host_free;
        blocks_.erase(block);
        std::free(block);
      }
    }
    cached_.clear();
  }

  void copy_data(void* destination, const void* source, size_t nbytes) const override {
    std::memcpy(destination, source, nbytes);
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  at::HostStats get_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }

  void reset_accumulated_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    each_stat([](at::Stat& stat) { stat.reset_accumulated(); });
    stats_.num_host_alloc = stats_.num_host_free = 0;
  }

  void reset_peak_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    each_stat([](at::Stat& stat) { stat.reset_peak(); });
  }

 private:
  struct Block {
    size_t size;
    bool in_use;
  };

  void* take_cached(size_t size) {
    auto found = cached_.find(size);
    if (found == cached_.end() || found->second.empty()) {
      return nullptr;
    }
    void* block = found->second.back();
    found->second.pop_back();
    return block;
  }

  void* new_block(size_t size, size_t nbytes) {
    void* block = std::aligned_alloc(ledger::kAlignment, size);
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "pin_memory: could not allocate ", nbytes,
                     " bytes of host memory. Free tensors, or call torch.accelerator.empty_host_cache().");
    blocks_.emplace(block, Block{size, false});
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(size);
    ++stats_.num_host_alloc;
    return block;
  }

  template <typename Change>
  void each_stat(Change&& change) {
    for (at::Stat* stat :
         {&stats_.allocations, &stats_.allocated_bytes, &stats_.active_requests, &stats_.active_bytes}) {
      change(*stat);
    }
  }

  std::mutex mutex_;
  std::map<void*, Block> blocks_;                // all, by address
  std::map<size_t, std::vector<void*>> cached_;  // free ones, by size
  at::HostStats stats_;
};

// Leaked: pinned tensors may be freed by static destructors.
PinnedAllocator& allocator() {
  static auto* pinned = new PinnedAllocator();
  return *pinned;
}

void free_block(void* block) { allocator().free(block); }

// A child of fork may free pinned tensors: it must not find the lock held by a thread it does not have.
[[maybe_unused]] const int fork_handlers =
    pthread_atfork([] { allocator().lock(); }, [] { allocator().unlock(); }, [] { allocator().unlock(); });

REGISTER_HOST_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator())

}  // namespace

at::HostAllocator* host_allocator() { return &allocator(); }

bool is_pinned(const void* data) { return allocator().holds(data); }

}  // namespace neuron
