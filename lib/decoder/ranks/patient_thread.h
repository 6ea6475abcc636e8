// Lets one thread wait for memory: a thread that must not fail, because other ranks wait for it. If
// memory is short, its allocations wait until other threads free memory, for example by refusing
// requests. Any thread may use it; allocations of other threads fail as usual.
#pragma once

#include "base/clock.h"

namespace dslaunch::decoder {

// While this object lives, an allocation of this thread that finds no memory is repeated. When the
// time LIMIT, counted from the constructor, is over, it throws std::bad_alloc. The C library's
// malloc does not wait.
class PatientThread {
  public:
    explicit PatientThread(Duration limit);
    PatientThread(const PatientThread&) = delete;
    PatientThread& operator=(const PatientThread&) = delete;
    ~PatientThread();
};

}  // namespace dslaunch::decoder
