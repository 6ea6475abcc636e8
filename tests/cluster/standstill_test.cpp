// A standstill does not end a job: a launcher is stopped, a reader pauses, or a log accepts no
// data. But the loss of the launcher's machine does. The limits are those in
// launch/process/timing.h, so the waits here are real; all of them run at the same time.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "launch/plan/join_token.h"
#include "launch/process/process_tree.h"
#include "launch/process/timing.h"
#include "support/catch.h"
#include "support/job_end.h"
#include "support/job_process.h"
#include "support/listener.h"
#include "support/rig_hosts.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

using Words = std::vector<std::string>;

// A job whose ranks record their ids in its folder. They end with 0 after let_end().
class WaitingJob {
  public:
    void start(const Words& command) { process_ = std::make_unique<JobProcess>(folder_, command); }
    [[nodiscard]] std::string script() const {
        return "echo $$ >> " + folder_.path() + "/pids; while [ ! -e " + folder_.path() +
               "/go ]; do sleep 0.1; done";
    }
    [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }
    [[nodiscard]] JobProcess& process() { return *process_; }
    [[nodiscard]] bool runs(size_t ranks) {
        workers_ = recorded_processes(folder_);
        return workers_.size() == ranks;
    }
    [[nodiscard]] bool all_live() const {
        for (const ProcessName& worker : workers_) {
            if (name_process(worker.pid) != worker) return false;
        }
        return !workers_.empty();
    }
    [[nodiscard]] bool all_ended() const { return all_gone(workers_); }
    void let_end() const { std::ofstream(folder_.path() + "/go") << "x"; }

  private:
    TemporaryFolder folder_;
    std::unique_ptr<JobProcess> process_;
    std::vector<ProcessName> workers_;
};

// A job with one agent, which joined over TCP from another process group.
class JoinedJob {
  public:
    JoinedJob() {
        const std::string token = folder_.path() + "/token";
        std::ofstream(token) << make_token() << "\n";
        ::chmod(token.c_str(), 0600);
        const std::string where = "127.0.0.1:" + std::to_string(listen_on_loopback().port);
        job_.start({"env", "XDG_STATE_HOME=" + folder_.path(), kDslaunch, "--launcher", "join",
                    "--listen", where, "--token-file", token, "--nnodes", "1", "--num_gpus", "1",
                    "--device", "cpu", "sh", "-c", job_.script()});
        agent_ = std::make_unique<JobProcess>(
            folder_, Words{kDslaunch, "agent", "--join", where, "--token-file", token});
    }
    [[nodiscard]] WaitingJob& job() { return job_; }

  private:
    TemporaryFolder folder_;
    WaitingJob job_;
    std::unique_ptr<JobProcess> agent_;
};

void stop_and_go_on(std::chrono::milliseconds time, const RigHosts* rig) {
    WaitingJob local;
    local.start({kProbe, "hosts=a,b", "--", "sh", "-c", local.script()});
    JoinedJob joined;
    std::vector<WaitingJob*> jobs = {&local, &joined.job()};
    std::vector<size_t> ranks = {2, 1};
    WaitingJob over_ssh;
    WaitingJob over_openssh;
    WaitingJob over_relays;
    if (rig != nullptr) {
        over_ssh.start(rig->probe("ssh", "good", "n1,n2", over_ssh.script()));
        over_openssh.start(rig->probe("openssh", "good", "n1,n2", over_openssh.script()));
        Words tree = rig->probe("ssh", "good", "n1,n2,n3,n4", over_relays.script());
        tree.insert(std::ranges::find(tree, "--"), "fanout=2");
        over_relays.start(tree);
        jobs.insert(jobs.end(), {&over_ssh, &over_openssh, &over_relays});
        ranks.insert(ranks.end(), {4, 4, 8});
    }
    for (size_t i = 0; i < jobs.size(); ++i) {
        REQUIRE(wait_until([&] { return jobs[i]->runs(ranks[i]); }));
    }
    for (WaitingJob* job : jobs) job->process().signal(SIGSTOP);
    std::this_thread::sleep_for(time);
    for (const WaitingJob* job : jobs) CHECK(job->all_live());
    for (WaitingJob* job : jobs) job->process().signal(SIGCONT);
    // Nor does the launcher blame its hosts for its own silence.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    for (const WaitingJob* job : jobs) job->let_end();
    for (WaitingJob* job : jobs) {
        CHECK(job->process().wait() == 0);
        INFO(job->process().err());
        CHECK(job->process().err().find("is lost") == std::string::npos);
    }
}

constexpr int kLogLines = 200'000;  // more than a FIFO holds

// A job in which rank 0's log is a FIFO that nobody reads.
class HungLog {
  public:
    HungLog() : output_(job_.folder().path() + "/out"), fifo_(output_ + "/logs/rank-0.log") {
        REQUIRE(::mkdir(output_.c_str(), 0700) == 0);
        REQUIRE(::mkdir((output_ + "/logs").c_str(), 0700) == 0);
        REQUIRE(::mkfifo(fifo_.c_str(), 0600) == 0);
        job_.start({"env", "XDG_STATE_HOME=" + state_.path(), kDslaunch, "--output", output_,
                    "--num_gpus", "1", "--device", "cpu", "sh", "-c",
                    "seq " + std::to_string(kLogLines) + "; " + job_.script()});
    }
    [[nodiscard]] WaitingJob& job() { return job_; }
    // Reads until the job ends. Returns everything that was written.
    [[nodiscard]] std::string read_to_the_end() {
        const UniqueFd reader(::open(fifo_.c_str(), O_RDONLY | O_CLOEXEC));
        REQUIRE(reader.valid());
        job_.let_end();
        return read_all(reader.get());
    }
    static std::string read_all(int fd) {
        std::string got;
        char block[1 << 16];
        for (ssize_t n = 0; (n = ::read(fd, block, sizeof block)) > 0;)
            got.append(block, static_cast<size_t>(n));
        return got;
    }

  private:
    const TemporaryFolder state_;
    WaitingJob job_;
    std::string output_, fifo_;
};

// A job whose record blocks when it is opened.
class HungRecord {
  public:
    HungRecord() : record_(state_.path() + "/dslaunch/jobs/hung") {
        REQUIRE(std::filesystem::create_directories(record_));
        REQUIRE(::mkfifo((record_ + "/lock").c_str(), 0600) == 0);
        job_.start({"env", "XDG_STATE_HOME=" + state_.path(), kDslaunch, "--job-id", "hung",
                    "--num_gpus", "1", "--device", "cpu", "sh", "-c",
                    "seq " + std::to_string(kLogLines) + "; " + job_.script()});
    }
    [[nodiscard]] WaitingJob& job() { return job_; }
    [[nodiscard]] std::string file(const std::string& name) const {
        return text_or_empty(record_ + "/" + name, 64U << 20);
    }
    // Unblocks the record.
    void answer() {
        reader_.reset(::open((record_ + "/lock").c_str(), O_RDONLY | O_CLOEXEC));
        REQUIRE(reader_.valid());
    }

  private:
    const TemporaryFolder state_;
    WaitingJob job_;
    std::string record_;
    UniqueFd reader_;
};

void let_disks_hang(std::chrono::milliseconds time) {
    HungLog log;
    HungRecord record;
    for (WaitingJob* job : {&log.job(), &record.job()})
        REQUIRE(wait_until([&] { return job->runs(1); }));
    std::this_thread::sleep_for(time);
    for (WaitingJob* job : {&log.job(), &record.job()}) {
        CHECK(job->all_live());
        CHECK_THAT(job->process().err(), Catch::Contains("has accepted no data for"));
    }
    // All output that was waiting arrives when the files accept data again.
    const std::string last = std::to_string(kLogLines) + "\n";
    const std::string written = log.read_to_the_end();
    CHECK(std::ranges::count(written, '\n') == kLogLines);
    CHECK(written.ends_with("\n" + last));
    CHECK(log.job().process().wait() == 0);
    record.answer();
    const auto recorded = [&] { return record.file("job.log").find("\t" + last); };
    CHECK(wait_until([&] { return recorded() != std::string::npos; }));
    CHECK(record.file("job.log").find("\t1\n") != std::string::npos);
    record.job().let_end();
    CHECK(record.job().process().wait() == 0);
    CHECK_THAT(record.file("job.json"), Catch::Contains("\"state\": \"ended\""));
    for (WaitingJob* job : {&log.job(), &record.job()})
        CHECK_THAT(job->process().err(), !Catch::Contains("are lost"));
}

// `exec --stream` on two hosts. It writes into a FIFO that nobody reads yet.
class StreamedExec {
  public:
    explicit StreamedExec(const RigHosts& rig) {
        const std::string fifo = folder_.path() + "/fifo";
        REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
        process_ = std::make_unique<JobProcess>(
            folder_,
            rig.on(0, {"sh", "-c",
                       "exec " + kDslaunch + " exec --ssh-config " + rig.config("good") +
                           " -w n1,n2 --stream seq " + std::to_string(kLines) + " > " + fifo}));
        reader_.reset(::open(fifo.c_str(), O_RDONLY | O_CLOEXEC));
        REQUIRE(reader_.valid());
    }
    [[nodiscard]] JobProcess& process() { return *process_; }
    void check_all_lines() {
        const std::string got = HungLog::read_all(reader_.get());
        CHECK(process_->wait() == 0);
        INFO(process_->err());
        CHECK(std::ranges::count(got, '\n') == 2 * kLines);
        for (const std::string host : {"n1", "n2"})
            CHECK(got.find(host + ": " + std::to_string(kLines) + "\n") != std::string::npos);
    }

  private:
    static constexpr int kLines = 1'000'000;  // more than all buffers on the way hold
    TemporaryFolder folder_;
    std::unique_ptr<JobProcess> process_;
    UniqueFd reader_;
};

}  // namespace

// Negative control, done by hand: agents that judge only by silence end the ranks after 15 s.
TEST_CASE("a launcher that was stopped for longer than any silence allowed keeps its job") {
    const RigHosts rig(4, "ssh to hosts made of network namespaces");
    stop_and_go_on(kSilenceMax + std::chrono::seconds(3), rig.usable() ? &rig : nullptr);
}

TEST_CASE("a launcher that was stopped for 40 s keeps its job", "[.long]") {
    const RigHosts rig(4, "ssh to hosts made of network namespaces");
    stop_and_go_on(std::chrono::seconds(40), rig.usable() ? &rig : nullptr);
}

TEST_CASE("ranks end when the launcher's machine is gone, though nothing was closed", "[.long]") {
    const RigHosts rig(2, "ssh to hosts made of network namespaces");
    if (!rig.usable()) return;
    for (const std::string transport : {"ssh", "openssh"}) {
        WaitingJob job;
        job.start(rig.probe(transport, "good", "n1,n2", job.script()));
        REQUIRE(wait_until([&] { return job.runs(4); }));
        const TemporaryFolder folder;
        const auto link = [&](const std::string& state) {
            JobProcess set(folder, {"ip", "-n", rig.name(0), "link", "set", "eth0", state});
            REQUIRE(set.wait() == 0);
        };
        link("down");
        const auto began = Steady::now();
        CHECK(wait_until([&] { return job.all_ended(); }));
        const double ms = milliseconds_since(began);
        std::printf("%s: the launcher's link is down, all ranks gone after %.0f ms\n",
                    transport.c_str(), ms);
        CHECK(ms >= 10'000);
        CHECK(job.process().wait() == 67);
        link("up");
    }
}

TEST_CASE("a log that nobody reads holds up neither the ranks nor a signal") {
    WaitingJob job;
    const std::string output = job.folder().path() + "/out";
    const TemporaryFolder state;
    REQUIRE(::mkdir(output.c_str(), 0700) == 0);
    REQUIRE(::mkdir((output + "/logs").c_str(), 0700) == 0);
    const std::string fifo = output + "/logs/rank-0.log";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    job.start({"env", "XDG_STATE_HOME=" + state.path(), kDslaunch, "--output", output, "--num_gpus",
               "1", "--device", "cpu", "sh", "-c",
               "head -c 1000000 /dev/zero | tr '\\0' x; echo; " + job.script()});
    REQUIRE(wait_until([&] { return job.runs(1); }));
    std::this_thread::sleep_for(kSilenceMax + std::chrono::seconds(2));
    CHECK(job.all_live());
    CHECK_THAT(job.process().err(), Catch::Contains("out has accepted no data for"));
    // The first signal ends the ranks. The second signal ends the wait for the log.
    const auto began = Steady::now();
    job.process().signal(SIGTERM);
    CHECK(wait_until([&] { return job.all_ended(); }));
    job.process().signal(SIGINT);
    CHECK(job.process().wait() == 76);
    INFO(job.process().err());
    std::printf("a log that nobody reads: the job ends %.0f ms after the signal\n",
                milliseconds_since(began));
    CHECK_THAT(job.process().err(), Catch::Contains("were not written"));
}

TEST_CASE("what disks miss while they hang is written afterwards, in the log and in the record") {
    let_disks_hang(kSilenceMax + std::chrono::seconds(2));
}

TEST_CASE("what disks miss while they hang for 40 s is written afterwards", "[.long]") {
    let_disks_hang(std::chrono::seconds(40));
}

TEST_CASE("a reader that pauses stops the lines of exec, neither its hosts nor a signal") {
    const RigHosts rig(2, "exec into a reader that pauses, over ssh");
    if (!rig.usable()) return;
    StreamedExec patient(rig);
    StreamedExec interrupted(rig);
    std::this_thread::sleep_for(kSilenceMax + std::chrono::seconds(2));
    interrupted.process().signal(SIGINT);
    CHECK(interrupted.process().wait(60'000) == 76);
    patient.check_all_lines();
}

TEST_CASE("a reader that pauses for longer than a launcher may be silent loses no line of exec",
          "[.long]") {
    const RigHosts rig(2, "exec into a reader that pauses for long, over ssh");
    if (!rig.usable()) return;
    StreamedExec patient(rig);
    StreamedExec very_patient(rig);
    std::this_thread::sleep_for(std::chrono::seconds(40));
    patient.check_all_lines();
    std::this_thread::sleep_for(kLeaseMax - std::chrono::seconds(30));
    very_patient.check_all_lines();
}
