// The end of a server: signals, the launcher's wish and the service's failure, whatever the process
// does meanwhile. Data path: signals -> [here] -> http_server.h, text_service.h. Threads: one of
// its own waits for signals.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "server/http_server.h"
#include "server/text_service.h"
#include "worker/text/rank_process.h"

namespace dslaunch::worker {

class EndWatch {
  public:
    // From here on SIGINT and SIGTERM wait for an EndWatch. Before the first thread starts.
    static void block_signals();

    // Until serve() a signal ends the process: nobody is served yet, and weights may take minutes.
    // PROCESS must outlive this.
    explicit EndWatch(const RankProcess& process);
    EndWatch(const EndWatch&) = delete;
    EndWatch& operator=(const EndWatch&) = delete;
    ~EndWatch();

    // Serves until a signal, the launcher or a failure of SERVICE asks to end. Texts that were
    // begun may then go on for GRACE, or until another signal comes. Whatever has not ended half a
    // second later is not waited for: the process exits with 0, unless a launcher ends it. Throws
    // Error{kSetup} when the server can take no connections any more.
    void serve(server::HttpServer& server, server::TextService& service, Duration grace);

  private:
    enum class Phase {
        kLoading,
        kServing,
        kGrace,   // it was asked to end, and texts go on
        kEnding,  // nothing is waited for but the end of what cannot be broken off
    };
    void watch();
    void look(int signal);
    void begin_grace();
    void begin_end();
    [[nodiscard]] bool leave_server();

    const RankProcess& process_;
    std::mutex mutex_;  // guards what follows
    Phase phase_ = Phase::kLoading;
    server::HttpServer* server_ = nullptr;
    server::TextService* service_ = nullptr;
    Duration grace_{};
    TimePoint limit_{};  // of the phase
    bool is_over_ = false;
    std::thread thread_;  // started last
};

}  // namespace dslaunch::worker
