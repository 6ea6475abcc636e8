#include "worker/text/signal_watch.h"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace dslaunch::worker {
namespace {

// The time limit of the last phase, Phase::kEnding. A step of a large model may take longer and
// cannot be interrupted; the process then ends without waiting for it.
constexpr std::chrono::milliseconds kEndMax{500};

sigset_t end_signals() {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    return ends;
}

}  // namespace

void SignalWatch::block_signals() {
    const sigset_t ends = end_signals();
    ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
}

SignalWatch::SignalWatch(const RankProcess& process)
    : process_(process), thread_([this] { watch(); }) {}

SignalWatch::~SignalWatch() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    thread_.join();
}

// Waits a moment for a signal and returns it. Returns a number of at most 0 if none came, or if it
// only repeats the one before it.
int SignalWatch::next_signal() {
    const sigset_t ends = end_signals();
    constexpr timespec kInterval{0, 50'000'000};
    siginfo_t info{};
    const int signal = ::sigtimedwait(&ends, &info, &kInterval);
    const auto now = std::chrono::steady_clock::now();
    return signal > 0 && repeats_.repeats(signal, info.si_code, now) ? 0 : signal;
}

void SignalWatch::watch() {
    for (;;) {
        const int signal = next_signal();
        const std::lock_guard lock(mutex_);
        if (over_) return;
        try {
            look(signal);
        } catch (const std::exception&) {
            // There was too little memory for a line of the log. The thread goes on without this
            // line.
        }
    }
}

// Moves to the next phase if SIGNAL (0 or less: none) or the clock requires it.
void SignalWatch::look(int signal) {
    const bool is_late = SystemClock().now() >= limit_;
    switch (phase_) {
        case Phase::kLoading:
            if (signal > 0) std::_Exit(128 + signal);
            break;
        case Phase::kServing:
            if (signal > 0 || process_.asked_to_end() || !service_->failure().empty())
                begin_grace();
            break;
        case Phase::kGrace:
            if (signal > 0 || is_late) begin_end();
            break;
        case Phase::kEnding:
            // In a job, the launcher kills a process that does not end, together with the other
            // ranks.
            if (!process_.reporter && (signal > 0 || is_late)) std::_Exit(0);
            break;
    }
}

void SignalWatch::begin_grace() {
    server_->stop();
    phase_ = Phase::kGrace;
    limit_ = SystemClock().now() + grace_;
    if (!service_->failure().empty()) return;
    const decoder::EngineCounts counts = service_->counts().engine;
    log_info("serve", "asked to end: waiting up to {:.0f} s for {}",
             std::chrono::duration<double>(grace_).count(),
             counted(counts.running + counts.waiting, "running text"));
}

void SignalWatch::begin_end() {
    phase_ = Phase::kEnding;
    // After a failure, the process must end with the failure's exit code, so there is no limit.
    limit_ = service_ != nullptr && !service_->failure().empty() ? TimePoint::max()
                                                                 : SystemClock().now() + kEndMax;
    if (service_ != nullptr) service_->end();
}

void SignalWatch::serve(server::HttpServer& server, server::TextService& service, Duration grace) {
    {
        const std::lock_guard lock(mutex_);
        phase_ = Phase::kServing;
        server_ = &server;
        service_ = &service;
        grace_ = grace;
    }
    try {
        server.run();
    } catch (...) {
        service.end();
        static_cast<void>(leave_server());
        throw;
    }
    service.end();
    if (!leave_server())
        fail(ExitCode::kSetup,
             "the server's socket has failed and accepts no more connections; the likely cause is "
             "the limit of `ulimit -n` or too little memory");
}

// Returns true if the server was asked to end. After this call, server and service may be
// destroyed.
bool SignalWatch::leave_server() {
    const std::lock_guard lock(mutex_);
    const bool was_asked = phase_ != Phase::kServing;
    server_ = nullptr;
    service_ = nullptr;
    if (phase_ != Phase::kEnding) {
        phase_ = Phase::kGrace;
        limit_ = TimePoint::max();
    }
    return was_asked;
}

}  // namespace dslaunch::worker
