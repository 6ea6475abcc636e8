// Lets one thread wait for memory. The thread must not fail, because other ranks wait for it. If
// memory is short, its allocations wait until other threads free memory, for example by refusing
// requests. Any thread may use it; allocations of other threads fail as usual.
#pragma once

#include "base/clock.h"

namespace dslaunch::decoder {

// Makes memory allocations of this thread wait for memory while this object exists. An allocation
// throws std::bad_alloc if there is no memory when LIMIT has passed since the construction of this
// object. Affects operator new, not malloc.
class PatientThread {
  public:
    explicit PatientThread(Duration limit);
    PatientThread(const PatientThread&) = delete;
    PatientThread& operator=(const PatientThread&) = delete;
    ~PatientThread();
};

}  // namespace dslaunch::decoder
