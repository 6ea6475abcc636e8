// Makes the kernel refuse a system call, as it does on some file systems and servers that a test
// cannot have.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <functional>

namespace dslaunch::test {

// Makes the system call NUMBER (__NR_flock, …) fail with ERROR_NUMBER from now on, in this process
// and its future children. Returns false if this kernel cannot do that.
inline bool refuse_call(int number, int error_number) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error_number)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{sizeof filter / sizeof filter[0], filter};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Runs WORK in a child process in which the call is refused. Returns true if WORK returned true.
inline bool holds_without_call(int number, int error_number, const std::function<bool()>& work) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(refuse_call(number, error_number) && work() ? 0 : 1);
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace dslaunch::test
