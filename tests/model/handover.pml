/* The hand-over of docs/protocols.md: token, doorbell, sleep, as core/exec/engine.cc has it. Two ranks;
 * per rank a progress thread and one or two user threads. Checked by handover_spin.sh, which also
 * breaks the protocol on purpose and expects Spin to object. Whoever changes one of the three changes
 * the others.
 *
 * The protocol:
 *   token    a mutex that guards all engine state. Users try_lock, the progress thread locks.
 *   doze     one word per rank, written by the token's holder: AWAKE while somebody steps the engine;
 *            ASLEEP, or WANTED when threads wait. Ring(q) writes q's eventfd unless q is AWAKE (for
 *            buckets without overlap: only when it is WANTED).
 *   polled   one bit in a rank's cell: a thread that runs a small operation looks at the cells, and
 *            has left the doze alone (RunInline).
 *   Release  doze = ASLEEP or WANTED; look at everything once more (Step); Unlock.
 *   Unlock   unlock; write the own eventfd if that Step did something, if the queue is not empty, or
 *            if a thread waits of which the doze does not tell.
 *   Park     parked++, sleep unless done. Finish: done, then wake if parked.
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
 *   MARK         Buckets of a set: the user publishes the arrival itself, without token or queue.
 *   OVERLAP_OFF  (with MARK) Buckets move only while some thread waits, and ring only WANTED ranks.
 *   INLINE       (with ONE_PHASE) Small operations run on the caller's thread.
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
#define PEER(w) (((w) / NL) * NL + ((w) + LANES) % NL)
#define ARRIVED(l) (l)
#ifdef ONE_PHASE
#define REDUCED(l) (l)
#else
#define REDUCED(l) (NL + l)
#endif
#define ALL_HAVE(w) (board[PEER(w)] >= board[w])
#define AWAKE 0
#define ASLEEP 1
#define WANTED 2
#ifdef OVERLAP_OFF
#define ONLY_WANTED 1
#ifdef NO_WANTED_LOOK
#define MAY_REDUCE (waiters[me] > 0)
#else
#define MAY_REDUCE (waiters[me] > 0 || doze[me] == WANTED)
#endif
#else
#define ONLY_WANTED 0
#define MAY_REDUCE 1
#endif
#if LANES == 1
#define QUEUED queued[me]
#else
#define QUEUED (queued[me * LANES] || queued[me * LANES + 1])
#endif

byte board[2 * NL]; /* single-writer counters: rounds arrived, then rounds whose slice is reduced */
bit polled[NL];
byte doze[2] = ASLEEP;
byte waiters[2]; /* user threads in Wait */
bit eventfd[2];
bit held[2];     /* the token */
bit queued[NL];  /* the submission queue */
bit complete[NL];    /* works */
byte parked[NL];
bit asleep[6];   /* futex waiters: rank * 3 + user */
byte finished[NL]; /* engine-private: rounds completed */

inline Ring(q) {
  if
  :: doze[q] == WANTED || (doze[q] == ASLEEP && !ONLY_WANTED) -> eventfd[q] = 1
  :: else
  fi
}

/* The other rank, which lane rl belongs to: not while a thread of it looks at the row. */
inline RingUnlessPolled(rl) {
  if
  :: polled[rl]
  :: else -> Ring(1 - me)
  fi
}

/* Store, then load the peer's word: at least the last publisher sees that all have it, and rings. */
inline Publish(pw, ring_self) {
#ifdef LOAD_FIRST
  seen = doze[1 - me] != AWAKE;
  board[pw]++;
  if
  :: ALL_HAVE(pw) && seen -> eventfd[1 - me] = 1
  :: else
  fi;
  seen = 0;
#else
#ifdef INLINE
  polled[pw] = 0;
#endif
  board[pw]++;
  if
  :: ALL_HAVE(pw) -> RingUnlessPolled(PEER(pw) % NL);
     if
     :: ring_self -> Ring(me)
     :: else
     fi
  :: else
  fi;
#endif
}

inline Finish(fl) {
  complete[fl] = 1;
  if
  :: parked[fl] -> d_step { asleep[me * 3] = 0; asleep[me * 3 + 1] = 0 }
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
     :: MAY_REDUCE && board[ARRIVED(k)] > board[REDUCED(k)] && ALL_HAVE(ARRIVED(k)) -> did = 1;
        Publish(REDUCED(k), 0)
     :: else
     fi;
#endif
     if
     :: MAY_REDUCE && board[REDUCED(k)] > finished[k] && ALL_HAVE(REDUCED(k)) -> did = 1;
        finished[k]++;
        Finish(k)
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

inline Unlock() {
  wanted = doze[me] == WANTED;
  held[me] = 0;
  if
  :: did -> eventfd[me] = 1
#ifndef NO_QUEUE_LOOK
  :: QUEUED -> eventfd[me] = 1
#endif
#ifndef NO_WAITER_LOOK
  :: !wanted && waiters[me] > 0 -> eventfd[me] = 1
#endif
  :: else
  fi;
  did = 0;
  wanted = 0
}

inline Release() {
#ifdef DOZE_AFTER_RECHECK
  Step(did);
#endif
  if
  :: waiters[me] > 0 -> doze[me] = WANTED
  :: else -> doze[me] = ASLEEP
  fi;
#if !defined(NO_RECHECK) && !defined(DOZE_AFTER_RECHECK)
  Step(did);
#endif
  Unlock()
}

proctype ProgressThread(bit me) {
  byte k;
  bit did, seen, wanted;
end:
  do
  :: eventfd[me] ->
#ifdef PT_TRIES_ONCE
     eventfd[me] = 0;
     if
     :: d_step { !held[me] -> held[me] = 1 }
     :: else -> goto end
     fi;
     doze[me] = AWAKE;
#else
     d_step { !held[me] -> held[me] = 1 };
     doze[me] = AWAKE;
     eventfd[me] = 0;
#endif
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
#ifdef MARK
#ifdef NO_SELF_RING
  Publish(ARRIVED(sl), 0)
#else
  Publish(ARRIVED(sl), 1)
#endif
#else
  queued[sl] = 1;
  if
  :: d_step { !held[me] -> held[me] = 1 };
     doze[me] = AWAKE;
     Step(did);
     Release()
  :: else /* the holder's, or after its Unlock the progress thread's */
  fi
#endif
}

/* A small operation on an idle lane: the cells alone, first quietly, then awake, then as a work. */
inline RunInline(il) {
  if
  :: d_step { !held[me] -> held[me] = 1 };
     if
     :: QUEUED -> Unlock(); Submit(il)
     :: else ->
        polled[il] = 1;
        board[ARRIVED(il)]++;
        if
        :: ALL_HAVE(ARRIVED(il)) -> RingUnlessPolled(PEER(ARRIVED(il)))
        :: else
        fi;
        if
        :: ALL_HAVE(ARRIVED(il)) -> finished[il]++; complete[il] = 1; Unlock()
        :: skip -> /* enough looks */
           doze[me] = AWAKE;
#ifndef NO_STOP_POLLING
           polled[il] = 0;
#endif
           if
           :: ALL_HAVE(ARRIVED(il)) -> finished[il]++; complete[il] = 1
           :: skip /* budget used: a work takes over */
           fi;
           Release()
        fi
     fi
  :: else -> Submit(il)
  fi
}

inline Wait(wl) {
  if
  :: complete[wl]
  :: else ->
     waiters[me]++;
     do
     :: if
        :: d_step { !held[me] -> held[me] = 1 };
           doze[me] = AWAKE;
           do
           :: complete[wl] -> break
           :: else -> Step(did)
           :: break /* budget used */
           od;
           did = 0;
           if
           :: complete[wl] -> waiters[me]--; over = 1
           :: else
           fi;
           Release();
           if
           :: over -> over = 0; break
           :: else
           fi
        :: else
        fi;
        if
        :: complete[wl] -> waiters[me]--; break
        :: else
        fi;
#ifdef PARK_UNCHECKED
        parked[wl]++;
        asleep[me * 3 + u] = 1;
#else
        parked[wl]++;
        d_step { /* futex_wait(state, PENDING) */
          if
          :: !complete[wl] -> asleep[me * 3 + u] = 1
          :: else
          fi
        };
#endif
        !asleep[me * 3 + u];
        parked[wl]--;
        if
        :: complete[wl] -> waiters[me]--; break
        :: else
        fi
     od
  fi
}

#define MINE(l) (users == 1 || l == u % LANES)

proctype User(bit me; byte u; byte users) {
  byte k, l, round;
  bit did, seen, wanted, over;
  do
  :: round < ROUNDS ->
     l = 0;
     do
     :: l < LANES ->
        if
        :: MINE(l) && u < LANES ->
           if
           :: round -> complete[me * LANES + l] = 0
           :: else
           fi;
#ifdef INLINE
           RunInline(me * LANES + l);
           Wait(me * LANES + l)
#else
           Submit(me * LANES + l)
#endif
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
  assert(!held[0] && !held[1] && doze[0] != AWAKE && doze[1] != AWAKE);
  assert(!waiters[0] && !waiters[1])
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
