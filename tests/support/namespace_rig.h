// Hosts that one of the rig scripts of tests/cluster makes out of network namespaces, for one test
// case: names of its own, taken down at the end.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"

namespace dslaunch::test {

class NamespaceRig {
  public:
    // SCRIPT is one of tests/cluster, NAME one letter for its namespaces, WHAT the words of a skip.
    NamespaceRig(const std::string& script, char name, const std::string& what, int hosts_count)
        : script_(std::string(test::source_dir()) + "/tests/cluster/" + script),
          prefix_(fmt::format("d{}{}x", name, ::getpid() % 1000)),
          folder_("/tmp/dslaunch-rig-" + prefix_) {
        const TemporaryFolder folder;
        JobProcess up(folder, command("up", {std::to_string(hosts_count)}));
        const int code = up.wait();
        usable_ = code == 0;
        if (code == 77) report_skipped(what, up.out());
        if (code != 0 && code != 77) FAIL("the rig does not stand: " + up.err());
    }
    NamespaceRig(const NamespaceRig&) = delete;
    NamespaceRig& operator=(const NamespaceRig&) = delete;
    ~NamespaceRig() {
        const TemporaryFolder folder;
        JobProcess down(folder, command("down", {}));
        down.wait();
    }
    [[nodiscard]] bool usable() const { return usable_; }
    [[nodiscard]] std::string host(int number) const { return prefix_ + std::to_string(number); }
    // Returns the command of the script with VERB, this rig's folder and names, and WORDS.
    [[nodiscard]] std::vector<std::string> command(const std::string& verb,
                                                   const std::vector<std::string>& words) const {
        std::vector<std::string> all = {script_, verb, folder_, prefix_};
        all.insert(all.end(), words.begin(), words.end());
        return all;
    }

  private:
    std::string script_;
    std::string prefix_;
    std::string folder_;
    bool usable_ = false;
};

}  // namespace dslaunch::test
