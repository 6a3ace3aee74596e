(* The price of all answers of one noisy matrix: python/dpgep/privacy/products.py, noise "lazy".

   E is what one person changes in a symmetric d x d matrix, q_0, q_1, ... are the orthonormal directions asked so far,
   each chosen after the answers before it. The answer to q_t moves by q_t^T E q_t, where the noise has the deviation s,
   and by P^T E q_t, where it has s/sqrt 2; P completes q_0, ..., q_t to a basis, so that
   |P^T E q_t|^2 = |E q_t|^2 - sum over r <= t of (q_r^T E q_t)^2. However many answers there are, together they cost at
   most what one release of the whole matrix costs, |E|_F^2/s^2, and all of that after d answers. *)

From Proofs Require Import Vectors.

(* constants: the square of what all answers cost; E2 is |E|_F^2 *)
Definition all_answers (E2 s : R) : R := E2 / s ^ 2.
(* end *)

Section Answers.
Variables (d m : nat) (E : matrix) (q : nat -> vector) (s : R).
Hypothesis symmetric : forall i j, E i j = E j i.
Hypothesis directions : orthonormal d m q.
Hypothesis S : 0 < s.

Definition image (t : nat) : vector := fun i => dot d (E i) (q t).
Definition entry (r t : nat) : R := dot d (q r) (image t).

(* What the t-th answer costs. *)
Definition cost (t : nat) : R :=
  (entry t t ^ 2 + 2 * (squared d (image t) - sum (Datatypes.S t) (fun r => entry r t ^ 2))) / s ^ 2.
Lemma entry_sym r t : entry r t = entry t r.
Proof.
  unfold entry, image, dot.
  rewrite (sum_ext d _ (fun i => sum d (fun j => q r i * (E i j * q t j)))) by (intros; now rewrite sum_times).
  rewrite sum_swap. apply sum_ext. intros j _. rewrite <- sum_times. apply sum_ext. intros i _.
  rewrite (symmetric i j). ring.
Qed.

(* E is at least as long as what m directions see of it. *)
Lemma seen : 2 * sum m (fun t => squared d (image t)) - sum m (fun r => sum m (fun t => entry r t ^ 2))
  <= frobenius d d E.
Proof.
  set (rest := fun i => across d m q (E i)).
  assert (A : frobenius d d rest = frobenius d d E - sum m (fun t => squared d (image t))).
  { unfold frobenius, rest. rewrite (sum_ext d _ (fun i => squared d (E i) - sum m (fun t => image t i ^ 2))).
    - rewrite sum_minus. f_equal. rewrite sum_swap. apply sum_ext. intros. unfold squared, dot. apply sum_ext. intros. ring.
    - intros i _. now rewrite squared_across. }
  (* columns of the rest, along the directions *)
  assert (B : sum d (fun j => sum m (fun r => dot d (fun i => rest i j) (q r) ^ 2)) <= frobenius d d rest).
  { replace (frobenius d d rest) with (sum d (fun j => squared d (fun i => rest i j))).
    - apply sum_le. intros j _. pose proof (squared_nonneg d (across d m q (fun i => rest i j))) as N.
      rewrite squared_across in N by assumption. lra.
    - unfold squared, frobenius, squared, dot. apply sum_swap. }
  assert (C : forall r, sum d (fun j => dot d (fun i => rest i j) (q r) ^ 2)
    = squared d (image r) - sum m (fun t => entry t r ^ 2)).
  { intros r. rewrite (sum_ext m _ (fun t => dot d (image r) (q t) ^ 2)) by (intros; unfold entry; now rewrite dot_sym).
    rewrite <- squared_across by assumption. unfold squared, dot at 2. apply sum_ext. intros j _.
    replace (dot d (fun i => rest i j) (q r)) with (across d m q (image r) j); [ring|].
    transitivity (sum d (fun i => E i j * q r i - sum m (fun t => dot d (E i) (q t) * q t j * q r i))).
    2: { apply sum_ext. intros. unfold rest, across. rewrite Rmult_minus_distr_r, <- sum_times_right. reflexivity. }
    rewrite sum_minus, sum_swap. unfold across at 1. f_equal.
    - unfold image, dot. apply sum_ext. intros. now rewrite (symmetric j i).
    - apply sum_ext. intros t _. rewrite (dot_sym d (image r)). change (dot d (q t) (image r)) with (entry t r).
      rewrite entry_sym. unfold entry, image at 1, dot at 1. rewrite <- sum_times_right. apply sum_ext. intros. unfold image. ring. }
  rewrite sum_swap, (sum_ext m _ _ (fun r _ => C r)), sum_minus, A in B.
  rewrite (sum_swap m m) in B. lra.
Qed.

Lemma triangle n : sum n (fun t => entry t t ^ 2 - 2 * (sum t (fun r => entry r t ^ 2) + entry t t ^ 2))
  = - sum n (fun r => sum n (fun t => entry r t ^ 2)).
Proof.
  induction n as [|n IH]; [simpl; ring|].
  assert (H : sum n (fun r => sum (Datatypes.S n) (fun t => entry r t ^ 2))
    = sum n (fun r => sum n (fun t => entry r t ^ 2)) + sum n (fun r => entry r n ^ 2)) by apply sum_plus.
  cbn [sum] in *. rewrite IH, H, (sum_ext n (fun t => entry n t ^ 2) (fun r => entry r n ^ 2)).
  - ring.
  - intros. now rewrite entry_sym.
Qed.

Theorem all_answers_together : sum m cost <= all_answers (frobenius d d E) s.
Proof.
  unfold all_answers. apply Rle_trans with (frobenius d d E / s ^ 2); [|lra].
  unfold cost, Rdiv. rewrite sum_times_right. apply Rmult_le_compat_r.
  - apply Rlt_le, Rinv_0_lt_compat. nra.
  - pose proof seen. pose proof (triangle m) as T.
    rewrite (sum_ext m _ (fun t => 2 * squared d (image t) + (entry t t ^ 2 - 2 * (sum t (fun r => entry r t ^ 2) + entry t t ^ 2))))
      by (intros; cbn [sum]; ring).
    rewrite sum_plus, sum_times, T. lra.
Qed.
End Answers.

(* Attained: the first answer alone, where all change is along its direction. *)
Theorem all_answers_is_attained s (S : 0 < s) : exists E q,
  (forall i j, E i j = E j i) /\ squared 1 (q O) = 1 /\ frobenius 1 1 E = 2 /\ sum 1 (cost 1 E q s) = all_answers 2 s.
Proof.
  exists (fun _ _ => sqrt 2), (fun _ _ => 1). unfold cost, all_answers, entry, image, frobenius, squared, dot. simpl.
  pose proof (sqrt_sqrt 2 ltac:(lra)) as H. set (r := sqrt 2) in *. repeat split; try lra.
  rewrite Rplus_0_l. apply eq_trans with (2 / (s * (s * 1))); [unfold Rdiv; f_equal|]; lra.
Qed.
