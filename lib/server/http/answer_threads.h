// The threads that answer requests. If more requests than threads are waiting, another thread is
// started, up to a limit. A thread lives until the end. Data path: connection_server.h -> [here] ->
// connection_server.h.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "base/machine/small_thread.h"
#include "server/http/connection.h"

namespace dslaunch::server {

// A pool of threads. Only the thread that reads the connections calls its functions.
class AnswerThreads {
  public:
    // Each thread calls ANSWER(connection) for a request, and WAKE() after the answer. Neither may
    // throw.
    AnswerThreads(size_t threads_max, std::function<void(Connection&)> answer,
                  std::function<void()> wake);
    AnswerThreads(const AnswerThreads&) = delete;
    AnswerThreads& operator=(const AnswerThreads&) = delete;
    ~AnswerThreads() { end(); }

    // Starts the first thread, before anything else uses memory. Throws Error{kSetup}.
    void start();
    // Moves CONNECTION out of LIST, so that one of the threads answers its request. Allocates
    // memory only to start a new thread. If no thread can be started, the existing threads answer
    // the request later.
    void hand_over(Connections& list, Connection& connection);
    // Returns the connections that were answered since the last call.
    [[nodiscard]] Connections take_back();
    // Returns the number of connections that were handed over and not taken back.
    [[nodiscard]] size_t answering() const { return answering_; }
    // Answers the requests that were handed over, then ends the threads.
    void end();

  private:
    void work();

    std::function<void(Connection&)> answer_;
    std::function<void()> wake_;
    size_t answering_ = 0;
    bool is_short_of_threads_ = false;

    std::mutex mutex_;  // guards the members below
    std::condition_variable changed_;
    Connections ready_;     // connections to be answered
    Connections returned_;  // answered
    size_t waiting_ = 0;    // threads that wait for work
    bool is_over_ = false;
    std::vector<SmallThread> threads_;  // started last, since they use the other members
};

}  // namespace dslaunch::server
