// A thread that other ranks wait for cannot give up what it has begun: while memory is short its
// allocations wait for what other threads give back, such as requests that are refused. Any thread;
// allocations of others fail as ever.
#pragma once

#include "base/clock.h"

namespace dslaunch::decoder {

// In its life an allocation of this thread that finds no memory is tried again for LIMIT, all of
// them together, before it throws std::bad_alloc. Those of the C library's malloc are not waited
// for.
class PatientThread {
  public:
    explicit PatientThread(Duration limit);
    PatientThread(const PatientThread&) = delete;
    PatientThread& operator=(const PatientThread&) = delete;
    ~PatientThread();
};

}  // namespace dslaunch::decoder
