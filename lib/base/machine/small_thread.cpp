#include "base/machine/small_thread.h"

namespace dslaunch {

namespace {

void* run(void* work) {
    const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()>*>(work));
    (*own)();
    return nullptr;
}

}  // namespace

SmallThread::SmallThread(std::function<void()> work, size_t stack_bytes) {
    auto own = std::make_unique<std::function<void()>>(std::move(work));
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, stack_bytes);
    const int error = ::pthread_create(&thread_, &attributes, run, own.get());
    ::pthread_attr_destroy(&attributes);
    if (error != 0)
        fail(ExitCode::kSetup, "cannot start another thread: {}; check the limits ulimit -u and -v",
             errno_text(error));
    static_cast<void>(own.release());
    is_running_ = true;
}

void SmallThread::join() {
    if (std::exchange(is_running_, false)) ::pthread_join(thread_, nullptr);
}

}  // namespace dslaunch
