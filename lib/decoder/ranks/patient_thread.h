// A thread that other ranks wait for and that cannot give up its work: while memory is short its
// allocations wait for memory that other threads give back, such as requests that are refused. Any
// thread; allocations of others fail as ever.
#pragma once

#include "base/clock.h"

namespace dslaunch::decoder {

// While it lives, an allocation of this thread that finds no memory is tried again for LIMIT, all
// of them together, before it throws std::bad_alloc. Allocations of the C library's malloc do not
// wait.
class PatientThread {
  public:
    explicit PatientThread(Duration limit);
    PatientThread(const PatientThread&) = delete;
    PatientThread& operator=(const PatientThread&) = delete;
    ~PatientThread();
};

}  // namespace dslaunch::decoder
