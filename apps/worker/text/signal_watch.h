// Ends `dslaunch serve` on a signal, at the launcher's request or after a failure. First, running
// texts may continue for a limited time. Then the process ends.
#pragma once

#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/machine/signal_repeats.h"
#include "server/http_server.h"
#include "server/text_service.h"
#include "worker/rank_process.h"

namespace dslaunch::worker {

// Ends a server on a signal, at the launcher's request, or after a failure of the service, even if
// other threads are busy. Threads: it has its own thread, which waits for signals.
class SignalWatch {
  public:
    // Blocks SIGINT and SIGTERM. They stay pending until a SignalWatch exists, which receives them.
    // REQUIRES: called before the first thread starts.
    static void block_signals();

    // Until serve() is called, a signal ends the process: there are no clients yet, and loading the
    // weights may take minutes. PROCESS must outlive this object.
    explicit SignalWatch(const RankProcess& process);
    SignalWatch(const SignalWatch&) = delete;
    SignalWatch& operator=(const SignalWatch&) = delete;
    ~SignalWatch();

    // Serves until a signal, the launcher or a failure of SERVICE asks the server to end. Texts
    // that have begun may then continue for GRACE, or until another signal comes. Half a second
    // later the process stops waiting and exits with 0, unless a launcher ends it. Throws
    // Error{kSetup} if the server can no longer accept connections.
    void serve(server::HttpServer& server, server::TextService& service, Duration grace);

  private:
    enum class Phase {
        kLoading,
        kServing,
        kGrace,   // the server was asked to end; running texts continue
        kEnding,  // waits only for work that cannot be interrupted
    };
    void watch();
    void look(int signal);
    [[nodiscard]] int next_signal();
    void begin_grace();
    void begin_end();
    [[nodiscard]] bool leave_server();

    const RankProcess& process_;
    std::mutex mutex_;  // guards the members below
    Phase phase_ = Phase::kLoading;
    server::HttpServer* server_ = nullptr;
    server::TextService* service_ = nullptr;
    Duration grace_{};
    TimePoint limit_{};  // the end of the phase
    bool over_ = false;
    SignalRepeats repeats_;  // used by the thread only
    std::thread thread_;     // must be started last
};

}  // namespace dslaunch::worker
