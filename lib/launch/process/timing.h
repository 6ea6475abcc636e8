// The waiting times of launcher and agent, in one place.
#pragma once

#include <chrono>

namespace dslaunch::launch {

inline constexpr auto kNever = std::chrono::steady_clock::time_point::max();
// The time between TERM and KILL.
inline constexpr std::chrono::milliseconds kTermToKill{250};
// After the end has begun, processes have this time to die; then they are given up and reported.
inline constexpr std::chrono::milliseconds kUnkillableMax{10'000};
// The time that an earlier attempt's processes on a host may take to end: a killed process ends
// only after it has run once more on a processor, which takes time on a busy machine.
inline constexpr std::chrono::milliseconds kLeftoversMax{20'000};
// Each side sends something at least this often.
inline constexpr std::chrono::milliseconds kPingInterval{3'000};
// A side considers the other side gone after this long without a byte. An agent does so only if its
// kernel also sees that the launcher's machine is gone (machine/launcher_silence.h).
inline constexpr std::chrono::milliseconds kSilenceMax{15'000};
// An agent considers a launcher gone if no byte has arrived for this time, even if the kernel sees
// no problem. A launcher that is stopped for a shorter time keeps its job. After this time, an
// agent that is cut off from the launcher has certainly ended its ranks.
inline constexpr std::chrono::milliseconds kLeaseMax{60'000};
// The silence that is allowed before the first byte: the launcher may have to start a thousand
// other agents first.
inline constexpr std::chrono::milliseconds kFirstByteMax{60'000};
// The interval in which a relay is pinged, and the silence after which it is given up. This silence
// is shorter than kSilenceMax, so the relay is given up before the agents that it serves.
inline constexpr std::chrono::milliseconds kRelayPingInterval{1'000};
inline constexpr std::chrono::milliseconds kRelaySilenceMax{11'000};
// The time allowed for sending an agent's last frames.
inline constexpr std::chrono::milliseconds kFarewellMax{1'000};
// A rank reports its position this often.
inline constexpr std::chrono::milliseconds kHeartbeatInterval{1'000};
// A rank is considered silent if another rank has sent a heartbeat more than this time after the
// rank's last heartbeat.
inline constexpr std::chrono::milliseconds kHeartbeatSilenceMax{2'500};
// If a rank has lost its peer, the launcher waits this long for a report about the lost rank. The
// wait begins when all other hosts have answered a ping or are known to be lost.
inline constexpr std::chrono::milliseconds kCulpritWait{50};
// After a rank has lost its peer, the launcher waits at most this long for the hosts to answer a
// ping.
inline constexpr std::chrono::milliseconds kCulpritWaitMax{5'000};
// The time that slurmd needs at most to kill all processes of a Slurm step.
inline constexpr std::chrono::milliseconds kStepEndMax{500};

// Returns the time of our clock, since 1970.
[[nodiscard]] inline std::chrono::nanoseconds wall_clock() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::system_clock::now().time_since_epoch());
}

}  // namespace dslaunch::launch
