// Hosts n1, n2, … with real sshds for the tests that need ssh, made and removed by
// tests/cluster/rig.sh; n0 is where the launcher runs.
#pragma once

#include <unistd.h>

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"

namespace dslaunch::test {

inline const std::string kProbe = std::string(test::binary_dir()) + "/launch_probe";
inline const std::string kRigScript = std::string(test::source_dir()) + "/tests/cluster/rig.sh";

class Rig {
  public:
    explicit Rig(int count, const std::string& max_startups = "10:30:100")
        : prefix_("dt" + std::to_string(::getpid() % 1000) + "x"),
          folder_("/tmp/dslaunch-rig-" + prefix_) {
        TemporaryFolder folder;
        JobProcess up(folder, {"env", "MAX_STARTUPS=" + max_startups, kRigScript, "up", folder_,
                               prefix_, std::to_string(count)});
        const int code = up.wait();
        usable_ = code == 0;
        if (code == 77) report_skipped("ssh to hosts made of network namespaces", up.out());
        if (code != 0 && code != 77) FAIL("the rig does not stand: " + up.err());
    }
    ~Rig() {
        TemporaryFolder folder;
        JobProcess down(folder, {kRigScript, "down", folder_, prefix_});
        down.wait();
    }
    [[nodiscard]] bool usable() const { return usable_; }
    // Host nI is the network namespace prefix() + I.
    [[nodiscard]] const std::string& prefix() const { return prefix_; }
    // launch_probe on the launcher's host.
    [[nodiscard]] std::vector<std::string> probe(const std::string& transport,
                                                 const std::string& config,
                                                 const std::string& hosts,
                                                 const std::string& script,
                                                 const std::string& program = kProbe) const {
        return {"ip",
                "netns",
                "exec",
                prefix_ + "0",
                program,
                "transport=" + transport,
                "ssh_config=" + folder_ + "/" + config,
                "hosts=" + hosts,
                "workers=2",
                "--",
                "sh",
                "-c",
                script};
    }

  private:
    std::string prefix_;
    std::string folder_;
    bool usable_ = false;
};

}  // namespace dslaunch::test
