// Tools of the promise tests: they run the real dslaunch over pretended hosts, with stub_rank as
// its ranks, and check that no process is left at the end.
#pragma once

#include <sys/prctl.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/figures.h"
#include "support/job_process.h"
#include "support/text_tools.h"

namespace dslaunch::test {

using namespace launch;

inline const std::string kStub = std::string(test::binary_dir()) + "/stub_rank";

using Words = std::vector<std::string>;

inline Words operator+(Words first, const Words& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

// Returns the command of dslaunch over HOSTS (a hostfile's text), which are all pretended on this
// machine.
inline Words on_pretended_hosts(const TemporaryFolder& folder, const std::string& hosts) {
    std::ofstream(folder.path() + "/hostfile") << hosts;
    return {kDslaunch, "--hostfile", folder.path() + "/hostfile", "--launcher", "local", "--quiet"};
}

// Returns true if all descendants of this process end within LIMIT_MS. Reaps the dead ones.
inline bool nothing_left(int limit_ms) {
    const bool gone = wait_until([] { return descendants(::getpid()).empty(); }, limit_ms);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    return gone;
}

// Returns the number of lines in the file at PATH; 0 if there is no such file yet.
inline size_t lines_in(const std::string& path) {
    std::ifstream file(path);
    size_t count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
}

// Random numbers, the same ones in every run.
class Dice {
  public:
    int between(int least, int most) {
        return std::uniform_int_distribution<int>(least, most)(engine_);
    }

  private:
    std::mt19937 engine_{20261121};
};

}  // namespace dslaunch::test
