// Hosts n1, n2, … made of network namespaces with an sshd each (tests/cluster/rig.sh), n0 where
// the launcher runs. They go with the object.
#pragma once

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"

namespace dslaunch::test {

class RigHosts {
  public:
    // WHAT goes unproved if the rig cannot stand: usable() is false then, and the skip was said.
    // Each host but n0 has an empty PRIVATE_FOLDER of its own.
    RigHosts(int count, const std::string& what, const std::string& max_startups = "200:30:400",
             const std::string& private_folder = "")
        : prefix_("dp" + std::to_string(::getpid() % 1000) + letter()),
          folder_("/tmp/dslaunch-rig-" + prefix_) {
        const TemporaryFolder folder;
        JobProcess up(folder, {"env", "MAX_STARTUPS=" + max_startups, "PRIVATE=" + private_folder,
                               script(), "up", folder_, prefix_, std::to_string(count)});
        const int code = up.wait();
        usable_ = code == 0;
        if (code == 77) report_skipped(what, up.out());
        if (code != 0 && code != 77) FAIL("the rig does not stand: " + up.err());
    }
    RigHosts(const RigHosts&) = delete;
    RigHosts& operator=(const RigHosts&) = delete;
    ~RigHosts() {
        const TemporaryFolder folder;
        JobProcess down(folder, {script(), "down", folder_, prefix_});
        down.wait();
    }
    [[nodiscard]] bool usable() const { return usable_; }
    [[nodiscard]] const std::string& folder() const { return folder_; }
    [[nodiscard]] std::string config(const std::string& name) const { return folder_ + "/" + name; }
    // Returns COMMAND as it runs on host n<NUMBER>.
    [[nodiscard]] std::vector<std::string> on(int number, std::vector<std::string> command) const {
        command.insert(command.begin(), {"ip", "netns", "exec", prefix_ + std::to_string(number)});
        return command;
    }
    // Runs COMMAND on a host; returns its exit code.
    int run(int number, const std::vector<std::string>& command) const {
        const TemporaryFolder folder;
        return JobProcess(folder, on(number, command)).wait();
    }
    // Waits until host n<NUMBER> listens on PORT: an sshd leaves its starter before it does.
    void wait_for_port(int number, int port) const {
        const std::string listens =
            "for i in $(seq 900); do ss -Hltn 'sport = " + std::to_string(port) +
            "' | grep -q . && exit 0; sleep 0.02; done; exit 1";
        REQUIRE(run(number, {"sh", "-c", listens}) == 0);
    }
    // Cuts host n<NUMBER> off as if its cable was pulled: nobody is told.
    void cut(int number) const {
        const TemporaryFolder folder;
        JobProcess process(
            folder, {"ip", "link", "set", prefix_ + std::to_string(number) + "v", "nomaster"});
        REQUIRE(process.wait() == 0);
    }

  private:
    // A letter of its own for each rig: the kernel may still be taking the last one's links away.
    static char letter() {
        static int rigs = 0;
        return static_cast<char>('a' + rigs++ % 26);
    }
    static std::string script() {
        return std::string(test::source_dir()) + "/tests/cluster/rig.sh";
    }
    std::string prefix_;
    std::string folder_;
    bool usable_ = false;
};

}  // namespace dslaunch::test
