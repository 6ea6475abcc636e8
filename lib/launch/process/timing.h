// The waits of launcher and agent, in one place.
#pragma once

#include <chrono>
#include <optional>

namespace dslaunch::launch {

inline constexpr auto kNever = std::chrono::steady_clock::time_point::max();
// The time from TERM to KILL.
inline constexpr std::chrono::milliseconds kTermToKill{250};
// The time from the beginning of the end until processes that do not die are given up and named.
inline constexpr std::chrono::milliseconds kUnkillableMax{10'000};
// The time for an earlier attempt's processes on a host to end: a killed process ends only once it
// has had a processor, which takes time beside busy programs.
inline constexpr std::chrono::milliseconds kLeftoversMax{20'000};
// Each side speaks at least this often …
inline constexpr std::chrono::milliseconds kPingInterval{3'000};
// … and believes the other gone after this long without a byte; an agent only when its kernel
// knows the launcher's machine gone too (machine/launcher_lease.h) …
inline constexpr std::chrono::milliseconds kSilenceMax{15'000};
// … else after this long: a launcher that is stopped for less keeps its job, and by then an agent
// that is cut off from a launcher has ended its ranks.
inline constexpr std::chrono::milliseconds kLeaseMax{60'000};
// The silence allowed before the first byte: the launcher may have a thousand others to start
// first.
inline constexpr std::chrono::milliseconds kFirstByteMax{60'000};
// A relay is pinged this often, and given up after this long: before the agents beyond it are.
inline constexpr std::chrono::milliseconds kRelayPingInterval{1'000};
inline constexpr std::chrono::milliseconds kRelaySilenceMax{11'000};
// The time for the last frames of an agent to leave.
inline constexpr std::chrono::milliseconds kFarewellMax{1'000};
// A rank says this often where it is …
inline constexpr std::chrono::milliseconds kHeartbeatInterval{1'000};
// … and is called silent when its silence exceeds another rank's by this.
inline constexpr std::chrono::milliseconds kHeartbeatSilenceMax{2'500};
// The wait after a rank that lost its peer, for a report of the lost rank: so long after all other
// hosts have answered a ping, or are known to be lost …
inline constexpr std::chrono::milliseconds kCulpritWait{50};
// … for which they have at most this time.
inline constexpr std::chrono::milliseconds kCulpritWaitMax{5'000};
// The time from the first process of a Slurm step that slurmd kills to the last.
inline constexpr std::chrono::milliseconds kStepEndMax{500};

// Returns our clock, since 1970.
[[nodiscard]] inline std::chrono::nanoseconds wall_clock() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::system_clock::now().time_since_epoch());
}

// A process that was stopped (Ctrl-Z, SIGSTOP, a debugger) has heard nobody meanwhile: the others'
// silence counts from the moment it listens again.
class Attention {
  public:
    // Called whenever the process listens, several times a second. Returns the time for which it
    // has not listened: 0 within kLookMax.
    [[nodiscard]] std::chrono::steady_clock::duration look(
        std::chrono::steady_clock::time_point now) {
        const auto away = now - looked_at_.value_or(now);
        looked_at_ = now;
        return away > kLookMax ? away : away.zero();
    }

  private:
    static constexpr std::chrono::milliseconds kLookMax{2'000};
    std::optional<std::chrono::steady_clock::time_point> looked_at_;
};

}  // namespace dslaunch::launch
