#include "launch/transport/ssh/ssh_resolver.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "launch/network/interfaces.h"

namespace dslaunch::launch {
namespace {

constexpr int kThreadsMax = 32;

struct Question {
    size_t host;
    std::string name;
    int port;
    int family;
};

}  // namespace

struct SshResolver::State {
    std::mutex mutex;
    std::deque<Question> questions;
    std::vector<ResolvedHost> answers;
    int threads = 0;
    UniqueFd wake;

    static void serve(const std::shared_ptr<State>& state) {
        for (;;) {
            Question question;
            {
                const std::lock_guard lock(state->mutex);
                if (state->questions.empty()) {
                    --state->threads;
                    return;
                }
                question = std::move(state->questions.front());
                state->questions.pop_front();
            }
            ResolvedHost resolved{question.host, nullptr, {}};
            std::string error;
            resolved.addresses = look_up(question.name, question.port, 0, &error, question.family);
            if (!resolved.addresses)
                resolved.error =
                    fmt::format("the name `{}` does not resolve: {}", question.name, error);
            const std::lock_guard lock(state->mutex);
            state->answers.push_back(std::move(resolved));
            ::eventfd_write(state->wake.get(), 1);
        }
    }
};

SshResolver::SshResolver() : state_(std::make_shared<State>()) {
    state_->wake = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!state_->wake.valid()) fail(ExitCode::kSetup, "eventfd: {}", errno_text(errno));
}

void SshResolver::ask(size_t host, const std::string& name, int port, int family) {
    const std::lock_guard lock(state_->mutex);
    state_->questions.push_back({host, name, port, family});
    if (state_->threads == kThreadsMax) return;
    ++state_->threads;
    std::thread([state = state_] { State::serve(state); }).detach();
}

int SshResolver::fd() const {
    return state_->wake.get();
}

std::vector<ResolvedHost> SshResolver::take() {
    eventfd_t ignored = 0;
    ::eventfd_read(state_->wake.get(), &ignored);
    const std::lock_guard lock(state_->mutex);
    return std::exchange(state_->answers, {});
}

}  // namespace dslaunch::launch
