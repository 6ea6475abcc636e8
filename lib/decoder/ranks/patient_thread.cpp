#include "decoder/ranks/patient_thread.h"

#include <chrono>
#include <new>
#include <thread>

namespace dslaunch::decoder {

namespace {

constexpr std::chrono::milliseconds kLookAgain{5};

thread_local TimePoint patient_until{};

// Waits a moment. Throws if this thread has no PatientThread, or if the time limit is over.
// operator new calls this function each time that it finds no free memory, and then tries again.
void wait_for_memory() {
    if (patient_until == TimePoint{} || SystemClock().now() >= patient_until)
        throw std::bad_alloc();
    std::this_thread::sleep_for(kLookAgain);
}

}  // namespace

PatientThread::PatientThread(Duration limit) {
    std::set_new_handler(wait_for_memory);
    patient_until = SystemClock().now() + limit;
}

PatientThread::~PatientThread() {
    patient_until = {};
}

}  // namespace dslaunch::decoder
