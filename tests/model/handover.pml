/* The hand-over of docs/protocols.md: token, doorbell, sleep. Two ranks; per rank a progress thread
 * and one or two user threads. Checked by handover_spin.sh, which also breaks the protocol on purpose
 * and expects Spin to object.
 *
 * The protocol:
 *   token    a mutex that guards all engine state. Helpers try_lock, the progress thread locks.
 *   doze     one word per rank: AWAKE while somebody steps the engine, EPOLL otherwise; written only
 *            by the token's holder.
 *   Ring(q)  if doze[q] == EPOLL: write eventfd[q]. Whoever makes a condition true rings, whether the
 *            condition is a word on the board or an entry in the rank's own submission queue.
 *   Release  doze = EPOLL; re-evaluate everything (Step); unlock; write the own eventfd if Step did
 *            something.
 *   Work     one word PENDING -> PARKED -> DONE; a waiter sets PARKED before it sleeps, Complete
 *            exchanges DONE and wakes all if it found PARKED.
 *
 * Modelled: an operation of two phases (all arrived -> reduce; all reduced -> complete), every access
 * to shared words a step of its own, sequential consistency, the eventfd as a sticky flag, no spurious
 * wake-ups and none of the implementation's 100 ms caps: a lost wake-up is a deadlock.
 * Not modelled: memory orders weaker than seq_cst (LOAD_FIRST shows what they would allow at the
 * doorbell), abort and death, sockets, deadlines, fairness of the mutex, callbacks.
 *
 * Shape: USERS0 users on rank 0 (1 or 2), one on rank 1; LANES works per round; ROUNDS rounds. With
 * more users than lanes the last user of rank 0 only waits, on a work that another one submits.
 * Variants that must hold:
 *   OVERLAP_OFF  Submit rings nobody: the waiter will drive.
 *   MARK         The user publishes the arrival itself: no token, no queue.
 *   ASYNC        Nobody waits: the progress threads do it all.
 *   BOUNDED      Step may stop after any action.
 *   ONE_PHASE    The second phase is left out (a smaller model for larger shapes).
 * Broken ones: the #ifdefs NO_*, DOZE_AFTER_RECHECK, LOAD_FIRST, PARK_UNCHECKED, PT_TRIES_ONCE. */
#ifndef USERS0
#define USERS0 1
#endif
#ifndef LANES
#define LANES 1
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#define NL (2 * LANES) /* rank r's lane l is index r * LANES + l */
#define PEER(w) ((w / NL) * NL + (w + LANES) % NL)
#define ARRIVED(l) (l)
#ifdef ONE_PHASE
#define REDUCED(l) (l)
#else
#define REDUCED(l) (NL + l)
#endif
#define PENDING 0
#define PARKED 1
#define DONE 2

byte board[2 * NL]; /* single-writer counters: rounds arrived, then rounds whose slice is reduced */
bit doze[2] = 1;  /* 1 = EPOLL */
bit eventfd[2];
bit held[2];     /* the token */
bit queued[NL];  /* the submission queue */
byte state[NL];  /* Work */
bit asleep[6];   /* futex waiters: rank * 3 + user */
byte finished[NL]; /* engine-private: rounds completed */

inline Ring(q) {
  if
  :: doze[q] -> eventfd[q] = 1
  :: else
  fi
}

/* Store, then load the peer's word: at least the last publisher sees that all have it, and rings. */
inline Publish(pw, ring_self) {
#ifdef LOAD_FIRST
  seen = doze[1 - me];
  board[pw]++;
  if
  :: board[PEER((pw))] >= board[pw] && seen -> eventfd[1 - me] = 1
  :: else
  fi;
  seen = 0;
#else
  board[pw]++;
  if
  :: board[PEER((pw))] >= board[pw] -> Ring(1 - me);
     if
     :: ring_self -> Ring(me)
     :: else
     fi
  :: else
  fi;
#endif
}

inline Complete(cl) {
  d_step { seen = state[cl] == PARKED; state[cl] = DONE; finished[cl]++ }
  if
  :: seen -> d_step { asleep[me * 3] = 0; asleep[me * 3 + 1] = 0; seen = 0 }
  :: else
  fi
}

/* Step(): false means that every condition was looked at and none was true. */
inline Step(did) {
  did = 0;
  k = me * LANES;
  do
  :: k < (me + 1) * LANES ->
#ifndef MARK
     if
     :: d_step { queued[k] -> queued[k] = 0; did = 1 };
        Publish(ARRIVED(k), 0)
     :: else
     fi;
#endif
#ifndef ONE_PHASE
     if
     :: board[ARRIVED(k)] > board[REDUCED(k)] &&
        board[PEER(ARRIVED(k))] >= board[ARRIVED(k)] -> did = 1;
        Publish(REDUCED(k), 0)
     :: else
     fi;
#endif
     if
     :: board[REDUCED(k)] > finished[k] && board[PEER(REDUCED(k))] >= board[REDUCED(k)] -> did = 1;
        Complete(k)
     :: else
     fi;
#ifdef BOUNDED
     if
     :: did -> break
     :: skip
     fi;
#endif
     k++
  :: else -> break
  od;
  k = 0
}

inline Release() {
#ifdef DOZE_AFTER_RECHECK
  Step(did);
  doze[me] = 1;
#else
  doze[me] = 1;
#ifndef NO_RECHECK
  Step(did);
#endif
#endif
  held[me] = 0;
  if
  :: did -> eventfd[me] = 1
  :: else
  fi;
  did = 0
}

proctype ProgressThread(bit me) {
  byte k;
  bit did, seen;
end:
  do
  :: eventfd[me] ->
     eventfd[me] = 0; /* drained before the lock: a later ring is kept, and Step follows in any case */
#ifdef PT_TRIES_ONCE
     if
     :: d_step { !held[me] -> held[me] = 1 }
     :: else -> goto end
     fi;
#else
     d_step { !held[me] -> held[me] = 1 };
#endif
     doze[me] = 0;
     do
     :: Step(did);
        if
        :: did
        :: else -> break
        fi
     od;
     Release()
  od
}

inline Submit(sl) {
  if
  :: round -> state[sl] = PENDING
  :: else
  fi;
#ifdef MARK
#ifdef NO_SELF_RING
  Publish(ARRIVED(sl), 0)
#else
  Publish(ARRIVED(sl), 1)
#endif
#else
  queued[sl] = 1;
#if !defined(OVERLAP_OFF) && !defined(NO_SUBMIT_RING)
  Ring(me)
#endif
#endif
}

inline Wait(wl) {
  do
  :: state[wl] == DONE -> break
  :: else ->
     if
     :: d_step { !held[me] -> held[me] = 1 };
        doze[me] = 0;
        do
        :: state[wl] == DONE -> break
        :: else -> Step(did)
        :: break /* budget used */
        od;
        did = 0;
        Release()
     :: else ->
#ifdef NO_WAITER_RING
        skip
#else
        Ring(me) /* the holder may be past its re-check, and nobody may have seen my request */
#endif
     fi;
#ifdef PARK_UNCHECKED
     if
     :: state[wl] != DONE -> state[wl] = PARKED; asleep[me * 3 + u] = 1
     :: else
     fi;
#else
     if
     :: d_step { state[wl] == PENDING -> state[wl] = PARKED }
     :: else
     fi;
     d_step { /* futex_wait(state, PARKED) */
       if
       :: state[wl] == PARKED -> asleep[me * 3 + u] = 1
       :: else
       fi
     };
#endif
     !asleep[me * 3 + u]
  od
}

#define MINE(l) (users == 1 || l == u % LANES)

proctype User(bit me; byte u; byte users) {
  byte k, l, round;
  bit did, seen;
  do
  :: round < ROUNDS ->
     l = 0;
     do
     :: l < LANES ->
        if
        :: MINE(l) && u < LANES -> Submit(me * LANES + l)
        :: else
        fi;
        l++
     :: else -> break
     od;
#ifndef ASYNC
     l = 0;
     do
     :: l < LANES ->
        if
        :: MINE(l) -> Wait(me * LANES + l)
        :: else
        fi;
        l++
     :: else -> break
     od;
#endif
     round++
  :: else -> break
  od
}

/* Runs when nothing else can: what was submitted is complete, and nobody kept the token. */
proctype Judge() {
  byte l;
  timeout;
  do
  :: l < NL -> 
     assert(finished[l] == ROUNDS && board[ARRIVED(l)] == ROUNDS && board[REDUCED(l)] == ROUNDS);
     l++
  :: else -> break
  od;
  assert(!held[0] && !held[1] && doze[0] && doze[1])
}

init {
  atomic {
    byte i;
    do
    :: i < USERS0 -> run User(0, i, USERS0); i++
    :: else -> break
    od;
    run User(1, 0, 1);
    run ProgressThread(0);
    run ProgressThread(1);
    run Judge()
  }
}
