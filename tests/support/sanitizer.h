// True in builds with the address or the thread sanitizer, whose runtime takes address space,
// memory and time of its own: tests that measure or limit these cannot judge there.
#pragma once

namespace dslaunch::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace dslaunch::test
