// A restart while a rank of the previous attempt, cut off from its launcher, still holds the lock
// on the folder of checkpoints.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>
#include <thread>

#include "support/catch.h"
#include "support/refused_call.h"
#include "support/saving_job.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

// Kills a rank of a job that saves. Then this process holds the lock for TIME; the lock file still
// names the rank that held it before.
void hold_lock(std::chrono::milliseconds time) {
    SavingJob job;
    job.interval = 1;
    job.more = {"--max-restarts", "1"};
    JobProcess process(job.folder, job.command(/*resume=*/false));
    const std::string path = job.output() + "/checkpoints/.lock";
    REQUIRE(wait_until([&] { return job.has_stepped(); }));
    UniqueFd held(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(held.valid());
    std::thread holder([&] { ::flock(held.get(), LOCK_EX); });
    kill_one(process, 1);
    holder.join();
    REQUIRE(wait_until(
        [&] { return process.err().find(".lock is locked by job ") != std::string::npos; }));
    std::this_thread::sleep_for(time);
    CHECK(process.err().find("restart 1 of 1") != std::string::npos);
    held.reset();
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 0);
    CHECK(process.err().find(", attempt 0, rank 0 on host ") != std::string::npos);
    CHECK(newest_whole(job.output()) == job.steps);
}

}  // namespace

TEST_CASE("a restart waits for the folder of checkpoints and names who holds it") {
    hold_lock(std::chrono::milliseconds(500));
}

TEST_CASE("a restart waits 16 s and 100 s for the folder of checkpoints", "[.long]") {
    for (const int seconds : {16, 100}) hold_lock(std::chrono::seconds(seconds));
}

TEST_CASE("a lock service that does not answer ends the job with its name, not as another job's") {
    SavingJob job;
    TemporaryFolder folder;
    const std::vector<std::string> command = job.command(/*resume=*/false);
    const int out = ::open((folder.path() + "/err").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(out, 2);
        std::vector<char*> argv;
        for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
        argv.push_back(nullptr);
        if (refuse_call(__NR_flock, ENOLCK)) ::execv(argv[0], argv.data());
        ::_exit(126);
    }
    ::close(out);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    INFO(folder.read("err"));
    CHECK(WEXITSTATUS(status) == 72);
    CHECK_THAT(folder.read("err"), Catch::Contains("lock service"));
    CHECK(folder.read("err").find("another run") == std::string::npos);
}
