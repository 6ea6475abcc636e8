// If all other ranks wait for a slow rank, the launcher names it.
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <optional>
#include <thread>

#include "support/catch.h"
#include "support/train_job.h"

namespace dslaunch::test {

using namespace launch;
namespace {

// Lets a process run for only a fifth of the time while this object lives. After 200 turns, lets it
// run for only a fiftieth of the time, because on a busy machine all ranks are slow in turn.
class Brake {
  public:
    explicit Brake(pid_t pid)
        : thread_([this, name = name_process(pid)] {
              for (int turn = 0; !released_; ++turn) {
                  signal_process(name, SIGSTOP);
                  std::this_thread::sleep_for(std::chrono::milliseconds(turn < 200 ? 40 : 490));
                  signal_process(name, SIGCONT);
                  std::this_thread::sleep_for(std::chrono::milliseconds(10));
              }
          }) {}
    Brake(const Brake&) = delete;
    Brake& operator=(const Brake&) = delete;
    ~Brake() {
        released_ = true;
        thread_.join();
    }

  private:
    std::atomic<bool> released_{false};
    std::thread thread_;
};

// Returns TEXT from WORDS to the end of the line; empty if TEXT does not contain WORDS.
std::string line_with(const std::string& text, const std::string& words) {
    const size_t at = text.find(words);
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

}  // namespace

TEST_CASE("the rank for which the others wait is named with its lane, and when it is so no more") {
    for (const int slow : {0, 2}) {
        // Each rank has one thread. Both pretended hosts count the same processors, and a rank
        // whose threads share one processor would be the slowest without the brake.
        TemporaryFolder folder;
        std::ifstream facts(fixture_path("models/gpt.json"));
        write_file(folder.path() + "/config.json",
                   fixture_config(Json::parse(facts), 1, 10'000'000).dump());
        write_file(folder.path() + "/hostfile", "left slots=2\nright slots=1\n");
        JobProcess job(
            folder, {kDslaunch, "--hostfile", folder.path() + "/hostfile", "--launcher", "local",
                     "--device", "cpu", "--env", "OMP_NUM_THREADS=1", "--straggler-interval", "20",
                     "--output", folder.path() + "/out", fixture_path("models/gpt.pt"), "--config",
                     folder.path() + "/config.json"});
        std::ifstream metrics;
        REQUIRE(wait_until([&] {
            metrics.open(folder.path() + "/out/metrics.jsonl");
            std::string line;
            const bool began = static_cast<bool>(std::getline(metrics, line));
            metrics.close();
            return began;
        }));
        const Json run = Json::parse(folder.read("out/run.json"));
        std::optional<Brake> brake(std::in_place,
                                   run.at("ranks").at(static_cast<size_t>(slow)).at("pid"));
        const std::string rank =
            fmt::format("straggler: rank {} on {}", slow, slow < 2 ? "left" : "right");
        const std::string words = rank + " has worked ";
        std::string line;
        const bool named =
            wait_until([&] { return !(line = line_with(job.err(), words)).empty(); });
        INFO(job.err());
        CHECK(named);
        std::printf("%s\n", line.c_str());
        CHECK(line.find("compute lane since step ") != std::string::npos);
        brake.reset();
        const bool ended = wait_until([&] {
            return !line_with(job.err(), rank + ", which was slow in its compute lane").empty();
        });
        INFO(job.err());
        CHECK(ended);
    }
}

}  // namespace dslaunch::test
