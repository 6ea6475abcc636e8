// Hosts n1, n2, …, which are network namespaces with an sshd each (tests/cluster/rig.sh), and n0,
// where the launcher runs. They exist until this object is destroyed.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/job_process.h"
#include "support/places.h"
#include "support/skip.h"

namespace dslaunch::test {

struct RigOptions {
    int count = 2;
    std::string what = {};  // the claim that is not tested if the rig cannot be made
    std::string max_startups = "200:30:400";
    std::string private_folder = {};  // each host except n0 has its own, empty at first
    std::string passwords = {};       // a shadow file that the hosts take passwords from
    std::string script = "rig.sh";
};

class RigHosts {
  public:
    explicit RigHosts(const RigOptions& options)
        : script_(std::string(source_dir()) + "/tests/cluster/" + options.script),
          prefix_(own_name()),
          folder_("/tmp/dslaunch-rig-" + prefix_) {
        std::vector<std::string> up = {"env", "MAX_STARTUPS=" + options.max_startups,
                                       "PRIVATE=" + options.private_folder,
                                       "PASSWORDS=" + options.passwords};
        for (std::string& word : command("up", {std::to_string(options.count)}))
            up.push_back(std::move(word));
        const TemporaryFolder folder;
        JobProcess process(folder, up);
        const int code = process.wait();
        usable_ = code == 0;
        if (code == 77) report_skipped(options.what, process.out());
        if (code != 0 && code != 77) FAIL("the rig does not stand: " + process.err());
    }
    RigHosts(int count, std::string what)
        : RigHosts(RigOptions{.count = count, .what = std::move(what)}) {}
    RigHosts(const RigHosts&) = delete;
    RigHosts& operator=(const RigHosts&) = delete;
    ~RigHosts() { run(command("down", {})); }

    // Returns false if the rig cannot be made here; the skip has been reported.
    [[nodiscard]] bool usable() const { return usable_; }
    [[nodiscard]] const std::string& folder() const { return folder_; }
    [[nodiscard]] std::string config(const std::string& name) const { return folder_ + "/" + name; }
    // Returns the network namespace of host n<NUMBER>.
    [[nodiscard]] std::string name(int number) const { return prefix_ + std::to_string(number); }
    // Returns the path of host n<NUMBER>'s private folder outside of the host.
    [[nodiscard]] std::string inside(int number) const {
        return folder_ + "/private/" + name(number);
    }
    // Returns the command of the script with VERB, this rig's folder and names, and WORDS.
    [[nodiscard]] std::vector<std::string> command(const std::string& verb,
                                                   const std::vector<std::string>& words) const {
        std::vector<std::string> all = {script_, verb, folder_, prefix_};
        all.insert(all.end(), words.begin(), words.end());
        return all;
    }
    // Returns the command that runs COMMAND on host n<NUMBER>.
    [[nodiscard]] std::vector<std::string> on(int number, std::vector<std::string> command) const {
        command.insert(command.begin(), {"ip", "netns", "exec", name(number)});
        return command;
    }
    // Returns the command of PROGRAM on n0 that starts two ranks of SCRIPT on each of HOSTS.
    [[nodiscard]] std::vector<std::string> probe(const std::string& transport,
                                                 const std::string& config_name,
                                                 const std::string& hosts,
                                                 const std::string& script,
                                                 const std::string& program = kProbe) const {
        return on(0, {program, "transport=" + transport, "ssh_config=" + config(config_name),
                      "hosts=" + hosts, "workers=2", "--", "sh", "-c", script});
    }
    // Runs COMMAND, here or on a host. Returns its exit code.
    static int run(const std::vector<std::string>& command) {
        const TemporaryFolder folder;
        return JobProcess(folder, command).wait();
    }
    [[nodiscard]] int run(int number, const std::vector<std::string>& command) const {
        return run(on(number, command));
    }
    // Waits until host n<NUMBER> listens on PORT, because the command that starts an sshd returns
    // before the sshd listens.
    void wait_for_port(int number, int port) const {
        const std::string listens =
            "for i in $(seq 900); do ss -Hltn 'sport = " + std::to_string(port) +
            "' | grep -q . && exit 0; sleep 0.02; done; exit 1";
        REQUIRE(run(number, {"sh", "-c", listens}) == 0);
    }
    // Cuts host n<NUMBER> off, as if its cable was pulled out: nobody is notified.
    void cut(int number) const {
        REQUIRE(run({"ip", "link", "set", name(number) + "v", "nomaster"}) == 0);
    }
    void set_link(int number, bool up) const {
        REQUIRE(run({"ip", "link", "set", name(number) + "v", up ? "up" : "down"}) == 0);
    }

  private:
    // Returns six letters that no other rig has, because the kernel may still be removing the
    // previous rig's links.
    static std::string own_name() {
        static int64_t rigs = 0;
        std::string name = "d";
        for (int64_t number = int64_t{::getpid()} * 26 + rigs++ % 26; name.size() < 6; number /= 26)
            name += static_cast<char>('a' + number % 26);
        return name;
    }

    std::string script_;
    std::string prefix_;
    std::string folder_;
    bool usable_ = false;
};

}  // namespace dslaunch::test
