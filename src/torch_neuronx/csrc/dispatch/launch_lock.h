// One launch at a time: between being taken as an argument and being replaced, an array may be donated.
#pragma once

namespace neuron::dispatch {

// Held by a thread while it launches an op or reads an array's memory. Gives the GIL up while it waits.
// A thread that has the lock may ask again: a finaliser can run an op in the middle of a launch.
class LaunchLock {
 public:
  LaunchLock();
  ~LaunchLock();
  LaunchLock(const LaunchLock&) = delete;
  LaunchLock& operator=(const LaunchLock&) = delete;
};

}  // namespace neuron::dispatch
