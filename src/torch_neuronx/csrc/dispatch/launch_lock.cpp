#include "dispatch/launch_lock.h"

#include <mutex>

#include "gil.h"

namespace neuron::dispatch {
namespace {

std::mutex mutex;
thread_local int depth = 0;

}  // namespace

LaunchLock::LaunchLock() {
  if (depth == 0 && !mutex.try_lock()) {
    const NoGil released;  // whoever holds the lock may need the GIL
    mutex.lock();
  }
  ++depth;
}

LaunchLock::~LaunchLock() {
  if (--depth == 0) {
    mutex.unlock();
  }
}

}  // namespace neuron::dispatch
