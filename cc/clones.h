// HPGRAIN_CLONES before a function makes a second copy of it with wider
// instructions; the loader takes the one that this machine has. For simple
// loops only: what a function calls is cloned where it is inlined.

#ifndef HPGRAIN_CLONES_H_
#define HPGRAIN_CLONES_H_

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && \
    !defined(__clang__)
#define HPGRAIN_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define HPGRAIN_CLONES
#endif

#endif  // HPGRAIN_CLONES_H_
