// A whole agent, connected by two pipes.
#include "launch/agent/agent.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "launch/process/process_tree.h"
#include "launch/process/spawn.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"
#include "support/catch.h"
#include "support/hang.h"
#include "support/temporary_folder.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

using std::chrono::milliseconds;

// Runs run_agent() in a child of this process, which ends with this object.
class LivingAgent {
  public:
    LivingAgent() : in_(make_pipe()), out_(make_pipe()), frames_(true) {
        guardian_ = ::fork();
        if (guardian_ == 0) {
            in_.write_end.reset();
            out_.read_end.reset();
            ::_exit(run_agent(in_.read_end.get(), out_.write_end.get(),
                              JoinChannel(JoinSide::kAgent, JoinKey())));
        }
        in_.read_end.reset();
        out_.write_end.reset();
        set_blocking(out_.read_end.get(), false);
    }
    LivingAgent(const LivingAgent&) = delete;
    LivingAgent& operator=(const LivingAgent&) = delete;
    ~LivingAgent() {
        in_.write_end.reset();  // the agent's launcher is gone
        out_.read_end.reset();
        ::waitpid(guardian_, nullptr, 0);
    }

    void send(FrameKind kind, std::string payload = {}) const {
        REQUIRE(write_full(in_.write_end.get(), encode(Frame{kind, std::move(payload)})) == 0);
    }
    // Reads until a frame of KIND comes. Returns false if the agent is gone or sends nothing.
    bool hear(FrameKind kind) {
        return wait_until([&] {
                   take();
                   while (const auto frame = frames_.next())
                       if (frame->kind == kind) return true;
                   return over_;
               }) &&
               !over_;
    }
    // Takes the bytes in the pipe, in one piece.
    void take() {
        std::string bytes(1U << 20, '\0');
        const ssize_t n = ::read(out_.read_end.get(), bytes.data(), bytes.size());
        if (n == 0) over_ = true;
        if (n > 0) frames_.append(std::string_view(bytes.data(), static_cast<size_t>(n)));
    }
    [[nodiscard]] int unread_bytes() const {
        int bytes = 0;
        ::ioctl(out_.read_end.get(), FIONREAD, &bytes);
        return bytes;
    }
    // Returns the agent itself, which is the guardian's child.
    [[nodiscard]] ProcessName process() const { return descendants(guardian_).front(); }

  private:
    Pipe in_, out_;
    FrameDecoder frames_;
    pid_t guardian_ = -1;
    bool over_ = false;
};

bool is_stopped(const ProcessName& process) {
    return describe_process(process.pid).find("state T") != std::string::npos;
}

}  // namespace

TEST_CASE("an agent whose last bytes leave while it is spoken to does not take that for the end") {
    const TemporaryFolder folder;
    LivingAgent agent;
    agent.send(FrameKind::kHello, encode(Hello{}));
    REQUIRE(agent.hear(FrameKind::kAgentHello));
    // More than a pipe holds, so the agent keeps the rest and waits until it can write.
    StartRequest request;
    request.working_directory = "/";
    request.workers.emplace_back();
    request.workers.back().command = {
        "sh", "-c", "seq 10000 26000; touch " + folder.path() + "/written; sleep 60"};
    agent.send(FrameKind::kStart, encode(request));
    REQUIRE(agent.hear(FrameKind::kStarted));
    REQUIRE(wait_until([&] { return std::filesystem::exists(folder.path() + "/written"); }));
    int unread = -1;  // until the agent has filled the pipe
    REQUIRE(wait_until([&] {
        std::this_thread::sleep_for(milliseconds(200));
        const int before = std::exchange(unread, agent.unread_bytes());
        return unread > 20'000 && unread == before;
    }));
    const ProcessName process = agent.process();
    REQUIRE(signal_process(process, SIGSTOP));
    REQUIRE(wait_until([&] { return is_stopped(process); }));
    // The agent's next poll finds two things: a message from the launcher, whose answer also sends
    // the rest, and room for that rest.
    agent.take();
    agent.send(FrameKind::kPing);
    REQUIRE(signal_process(process, SIGCONT));
    CHECK(agent.hear(FrameKind::kPong));
    agent.send(FrameKind::kPing);
    CHECK(agent.hear(FrameKind::kPong));
    CHECK(name_process(process.pid) == process);
}
