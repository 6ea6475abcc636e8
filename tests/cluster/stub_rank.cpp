// A rank for the promise tests that does one thing that ranks do, exactly and at once. It starts in
// a millisecond and needs nothing but the C library.
//   stub_rank stubborn FILE              ignores every signal that it can; has a grandchild in a
//                                        session of its own; both append their ids to FILE
//   stub_rank die HOW RANK MS FILE       every rank appends its id to FILE; RANK ends after MS
//                                        milliseconds (exit<N>, abort, segv, kill, oom) and leaves
//                                        the time in FILE.death; exit0: the others then end with 75
//   stub_rank environment FILE           writes its environment to FILE.<rank>, as the kernel gave
//                                        it
//   stub_rank lines COUNT HOW FILE       writes numbered lines to stdout and stderr, then ends as
//                                        for `die`; FILE.<rank> has the number of lines written
//   stub_rank stat FILE IDS              asks for FILE, on a file system that may never answer
//   stub_rank listen PORT                accepts connections on every address and sends nothing
//   stub_rank write FILE                 copies FILE to stdout and stderr, then ends with 3
//   stub_rank progress FILE STEPS MS EVERY SAVE_MS
//                                        rank 0 makes STEPS steps of MS milliseconds. After every
//                                        EVERY steps it writes their number to FILE, which takes
//                                        SAVE_MS. After a restart it continues from this number.
//                                        The other ranks wait for FILE.done
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

extern char** environ;

namespace {

void write_all(int fd, const std::string& text) {
    for (size_t at = 0; at < text.size();) {
        const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
        if (n <= 0) return;
        at += static_cast<size_t>(n);
    }
}

void record_id(const char* path) {
    const int fd = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    write_all(fd, std::to_string(::getpid()) + "\n");
    ::close(fd);
}

[[noreturn]] void wait_for_ever() {
    for (;;) ::pause();
}

int be_stubborn(const char* path) {
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGPIPE})
        ::signal(number, SIG_IGN);
    if (::fork() == 0) {
        ::setsid();
        if (::fork() != 0) ::_exit(0);
        record_id(path);
        wait_for_ever();
    }
    record_id(path);
    wait_for_ever();
}

[[noreturn]] void eat_memory() {
    constexpr size_t kStepBytes = size_t{8} << 20;
    for (;;) std::memset(::malloc(kStepBytes), 1, kStepBytes);
}

void end(const std::string& how) {
    if (how.rfind("exit", 0) == 0) ::_exit(std::atoi(how.c_str() + 4));
    if (how == "abort") ::abort();
    if (how == "segv") ::raise(SIGSEGV);
    if (how == "kill") ::raise(SIGKILL);
    if (how == "oom") eat_memory();
    ::_exit(126);
}

std::string own_rank() {
    const char* rank = ::getenv("RANK");
    return rank == nullptr ? "" : rank;
}

// Writes the time in nanoseconds of std::chrono::steady_clock. The file appears only when it is
// complete.
void record_death(const std::string& path) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const int fd = ::open((path + ".part").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    write_all(fd, std::to_string(now.tv_sec * 1'000'000'000L + now.tv_nsec));
    ::close(fd);
    ::rename((path + ".part").c_str(), path.c_str());
}

int die(const std::string& how, const std::string& rank, int after_ms, const char* ids) {
    const std::string death = std::string(ids) + ".death";
    record_id(ids);
    if (own_rank() != rank && how != "exit0") wait_for_ever();
    if (own_rank() != rank) {
        while (::access(death.c_str(), F_OK) != 0) ::usleep(1000);
        ::usleep(5000);
        ::_exit(75);  // the exit code of dslaunch's ranks that have lost a peer
    }
    ::usleep(static_cast<useconds_t>(1000 * after_ms));
    record_death(death);
    end(how);
    return 126;
}

int write_environment(const std::string& path) {
    std::string text;
    for (char** entry = environ; *entry != nullptr; ++entry) text.append(*entry).append(1, '\0');
    const std::string part = path + "." + own_rank() + ".part";
    const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    write_all(fd, text);
    ::close(fd);
    return ::rename(part.c_str(), (path + "." + own_rank()).c_str());
}

int write_lines(int count, const std::string& how, const std::string& path) {
    char line[64];
    const std::string rank = own_rank();
    const int written = ::open((path + "." + rank).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (::ftruncate(written, sizeof(long)) != 0) return 126;
    void* const page = ::mmap(nullptr, sizeof(long), PROT_WRITE, MAP_SHARED, written, 0);
    if (page == MAP_FAILED) return 126;
    auto* const lines = static_cast<volatile long*>(page);
    for (int i = 0; i < count; ++i) {
        for (const int fd : {1, 2}) {
            std::snprintf(line, sizeof line, "%s %08d of rank %s\n", fd == 1 ? "out" : "err", i,
                          rank.c_str());
            write_all(fd, line);
            *lines = *lines + 1;
        }
    }
    end(how);
    return 126;
}

int listen_silently(int port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return 1;
    if (::listen(socket, 16) != 0) return 1;
    write_all(1, "ready\n");
    wait_for_ever();
}

int copy_out(const char* path) {
    std::string text(1U << 20, '\0');
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = ::read(fd, text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    write_all(1, text);
    write_all(2, text);
    return 3;
}

void sleep_until(timespec& when, int64_t more_ms) {
    when.tv_nsec += (more_ms % 1000) * 1'000'000;
    when.tv_sec += more_ms / 1000 + when.tv_nsec / 1'000'000'000;
    when.tv_nsec %= 1'000'000'000;
    while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) != 0) {
    }
}

void write_whole(const std::string& path, const std::string& text) {
    const int fd = ::open((path + ".part").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    write_all(fd, text);
    ::close(fd);
    ::rename((path + ".part").c_str(), path.c_str());
}

int make_progress(const std::string& path, long steps, int step_ms, long every, int save_ms) {
    if (own_rank() != "0") {
        while (::access((path + ".done").c_str(), F_OK) != 0) ::usleep(20'000);
        return 0;
    }
    long done = 0;
    if (FILE* file = std::fopen(path.c_str(), "re")) {
        if (std::fscanf(file, "%ld", &done) != 1) return 126;
        std::fclose(file);
    }
    timespec when{};
    ::clock_gettime(CLOCK_MONOTONIC, &when);
    while (done < steps) {
        sleep_until(when, step_ms);
        if (++done % every != 0) continue;
        sleep_until(when, save_ms);
        write_whole(path, std::to_string(done));
    }
    write_whole(path + ".done", "");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "stubborn" && argc == 3) return be_stubborn(argv[2]);
    if (what == "die" && argc == 6) return die(argv[2], argv[3], std::atoi(argv[4]), argv[5]);
    if (what == "environment" && argc == 3) return write_environment(argv[2]);
    if (what == "lines" && argc == 5) return write_lines(std::atoi(argv[2]), argv[3], argv[4]);
    if (what == "stat" && argc == 4) {
        record_id(argv[3]);
        struct stat status {};
        return ::stat(argv[2], &status);
    }
    if (what == "listen" && argc == 3) return listen_silently(std::atoi(argv[2]));
    if (what == "progress" && argc == 7)
        return make_progress(argv[2], std::atol(argv[3]), std::atoi(argv[4]), std::atol(argv[5]),
                             std::atoi(argv[6]));
    if (what == "write" && argc == 3) return copy_out(argv[2]);
    return 126;
}
