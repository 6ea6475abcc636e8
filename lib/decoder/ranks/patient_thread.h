// Lets one thread wait for memory. Other ranks wait for this thread, and it cannot give up its
// work. If memory is short, its allocations wait until other threads free memory, for example by
// refusing requests. Any thread; allocations of other threads fail as usual.
#pragma once

#include "base/clock.h"

namespace dslaunch::decoder {

// While this object lives, allocations of this thread that find no memory are repeated, for LIMIT
// in total, before they throw std::bad_alloc. The C library's malloc does not wait.
class PatientThread {
  public:
    explicit PatientThread(Duration limit);
    PatientThread(const PatientThread&) = delete;
    PatientThread& operator=(const PatientThread&) = delete;
    ~PatientThread();
};

}  // namespace dslaunch::decoder
