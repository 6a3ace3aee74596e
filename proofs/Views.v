(* Rows in views: what Screens.v follows from. *)

From Proofs Require Import Vectors.

(* Norms of rows move by no more than the matrix. *)
Lemma row_norms d e A B :
  sum d (fun i => (sqrt (squared e (A i)) - sqrt (squared e (B i))) ^ 2) <= frobenius d e (difference A B).
Proof.
  apply sum_le. intros i _. change (difference A B i) with (minus (A i) (B i)). rewrite squared_minus.
  pose proof (sqrt_sqrt _ (squared_nonneg e (A i))) as Ha. pose proof (sqrt_sqrt _ (squared_nonneg e (B i))) as Hb.
  assert (dot e (A i) (B i) <= sqrt (squared e (A i)) * sqrt (squared e (B i))); [|nra].
  apply dot_le; try lra; apply sqrt_pos.
Qed.

(* Entries of A between views, and the diagonal: coordinate i is in the view `view i`. *)
Section Views.
Variables (d : nat) (view : nat -> nat).
Definition diagonal (A : matrix) : R := sum d (fun i => A i i ^ 2).
Definition between (A : matrix) : R := sum d (fun i => sum d (fun j => if Nat.eqb (view i) (view j) then 0 else A i j ^ 2)).

Lemma parts A : diagonal A + between A <= frobenius d d A.
Proof.
  unfold diagonal, between, frobenius. rewrite <- sum_plus. apply sum_le. intros i Hi.
  apply Rle_trans with (sum d (fun j => A i j ^ 2 * (if Nat.eqb j i then 1 else 0) +
    (if Nat.eqb (view i) (view j) then 0 else A i j ^ 2))).
  - rewrite sum_plus, select by assumption. lra.
  - apply sum_le. intros j _. pose proof (pow2_ge_0 (A i j)). destruct (Nat.eqb_spec j i) as [->|].
    + rewrite Nat.eqb_refl. lra.
    + destruct Nat.eqb; lra.
Qed.

Lemma nonneg_parts A : 0 <= diagonal A /\ 0 <= between A.
Proof.
  split; apply sum_nonneg; intros; [apply pow2_ge_0|]. apply sum_nonneg. intros. destruct Nat.eqb; [lra | apply pow2_ge_0].
Qed.

Lemma moment_replaced x x' : squared d x <= 1 -> squared d x' <= 1 ->
  frobenius d d (difference (outer x x) (outer x' x')) <= 2.
Proof.
  intros X X'. rewrite frobenius_difference. pose proof (squared_nonneg d x). pose proof (squared_nonneg d x').
  assert (0 <= dot d x x' * dot d x x') by apply Rle_0_sqr. nra.
Qed.

Lemma moment_added x : squared d x <= 1 -> frobenius d d (outer x x) <= 1.
Proof. intros X. rewrite frobenius_outer. pose proof (squared_nonneg d x). nra. Qed.

(* Adding a row to others in k views: what squares between views leave out is at least a part 1/k of all. *)
Lemma between_of_a_row k p : (0 < k)%nat -> (forall i, (i < d)%nat -> (view i < k)%nat) ->
  between (outer p p) <= (1 - 1 / INR k) * (squared d p * squared d p).
Proof.
  intros K W. set (part := fun v => sum d (fun i => p i * p i * (if Nat.eqb v (view i) then 1 else 0))).
  assert (All : sum k part = squared d p).
  { unfold part. rewrite sum_swap. unfold squared, dot. apply sum_ext. intros i Hi.
    now rewrite (select k (view i) (fun _ => p i * p i)) by now apply W. }
  assert (Within : between (outer p p) = squared d p * squared d p - sum k (fun v => part v * part v)).
  { unfold between, squared, dot, part at 1 2.
    rewrite (sum_ext k _ (fun v => sum d (fun i => sum d (fun j =>
      p i * p i * (p j * p j) * (if Nat.eqb v (view j) then 1 else 0) * (if Nat.eqb v (view i) then 1 else 0))))).
    2: { intros. rewrite sum_product. apply sum_ext. intros. apply sum_ext. intros. ring. }
    rewrite sum_product, (sum_swap k d), <- sum_minus. apply sum_ext. intros i Hi.
    rewrite (sum_swap k d), <- sum_minus. apply sum_ext. intros j Hj.
    rewrite (select k (view i) (fun v => p i * p i * (p j * p j) * (if Nat.eqb v (view j) then 1 else 0))) by now apply W.
    unfold outer. destruct Nat.eqb; ring. }
  pose proof (cauchy_schwarz k part (fun _ => 1)) as C. unfold squared at 1 2, dot in C.
  rewrite (sum_ext k (fun i => part i * 1) part), (sum_ext k (fun _ => 1 * 1) (fun _ => 1)), sum_const, All in C
    by (intros; ring).
  assert (0 < INR k) by now apply lt_0_INR.
  rewrite Within. set (Q := squared d p * squared d p) in *. set (N := sum k (fun v => part v * part v)) in *.
  assert (Q / INR k <= N); [|unfold Rdiv in *; lra].
  apply Rmult_le_reg_r with (INR k); trivial. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

Definition mean (x y : vector) : vector := fun i => (x i + y i) / 2.

Lemma dot_mean x y z : dot d (mean x y) z = (dot d x z + dot d y z) / 2.
Proof. unfold dot, Rdiv. rewrite <- sum_plus, <- sum_times_right. apply sum_ext. intros. unfold mean. field. Qed.
End Views.

(* Of x, x' and m: their mean w, their difference u. b = |w|^2, B = |u|^2, P = w . u, R = m . u, D = w . m, M = |m|^2. *)
Record scalars := { b_ : R; B_ : R; P_ : R; R_ : R; D_ : R; M_ : R }.
Definition scalars_of d x x' m := let w := mean x x' in let u := minus x x' in
  {| b_ := squared d w; B_ := squared d u; P_ := dot d w u; R_ := dot d m u; D_ := dot d w m; M_ := squared d m |}.

Lemma scalars_are d x x' m : let s := scalars_of d x x' m in
  squared d x = b_ s + B_ s / 4 + P_ s /\ squared d x' = b_ s + B_ s / 4 - P_ s /\
  squared d (minus x m) = b_ s - 2 * D_ s + M_ s + B_ s / 4 + (P_ s - R_ s) /\
  squared d (minus x' m) = b_ s - 2 * D_ s + M_ s + B_ s / 4 - (P_ s - R_ s) /\
  dot d (minus x m) (minus x' m) = b_ s - 2 * D_ s + M_ s - B_ s / 4.
Proof.
  simpl. unfold squared, dot, mean, minus. induction d as [|d (E1 & E2 & E3 & E4 & E5)]; simpl; repeat split; lra.
Qed.

Lemma inequalities d x x' m : let s := scalars_of d x x' m in
  0 <= b_ s /\ 0 <= B_ s /\ 0 <= M_ s /\ P_ s * P_ s <= b_ s * B_ s /\ R_ s * R_ s <= M_ s * B_ s /\
  D_ s * D_ s <= b_ s * M_ s /\ (P_ s + R_ s) * (P_ s + R_ s) <= (b_ s + 2 * D_ s + M_ s) * B_ s.
Proof.
  simpl. repeat split; try apply squared_nonneg; try apply cauchy_schwarz.
  set (w := mean x x'). set (u := minus x x').
  pose proof (cauchy_schwarz d (minus w (fun i => - m i)) u) as C. rewrite squared_minus, dot_minus in C.
  unfold squared in *. rewrite !dot_opposite, (dot_sym d w (fun i => - m i)), (dot_sym d m (fun i => - m i)), !dot_opposite,
    (dot_sym d m w) in C. lra.
Qed.

(* The covariance about the mean of the others moves by at most 4. *)
Lemma centred b B P R D M : 0 <= b -> 0 <= B -> 0 <= M <= 1 -> P * P <= b * B -> R * R <= M * B ->
  (P + R) * (P + R) <= (b + 2 * D + M) * B -> b + B / 4 + P <= 1 -> b + B / 4 - P <= 1 ->
  2 * ((b - 2 * D + M) * B) + 2 * ((P - R) * (P - R)) <= 16.
Proof.
  intros b0 B0 [M0 M1] HP HR HD H1 H2. set (v := sqrt B). assert (V : v * v = B) by now apply sqrt_sqrt.
  assert (v0 : 0 <= v) by apply sqrt_pos. set (p := Rabs P).
  assert (p0 : 0 <= p) by apply Rabs_pos. assert (pp : p * p = P * P) by (unfold p; rewrite <- Rabs_mult; apply Rabs_right, Rle_ge, Rle_0_sqr).
  assert (H : b + B / 4 + p <= 1) by (unfold p, Rabs; destruct Rcase_abs; lra).
  assert (r : Rabs R <= v).
  { apply square_le; trivial. rewrite <- Rabs_mult, Rabs_right, V by (apply Rle_ge, Rle_0_sqr). nra. }
  assert (PR : - (P * R) <= p * v).
  { apply Rle_trans with (Rabs (- (P * R))); [apply Rle_abs|]. rewrite Rabs_Ropp, Rabs_mult. now apply Rmult_le_compat_l. }
  assert (q : p + B / 2 <= v).
  { apply square_le; trivial. assert (B * (b + B / 4 + p) <= B * 1) by (apply Rmult_le_compat_l; lra). nra. }
  assert (v2 : v <= 2) by nra.
  assert (p * (v * (2 - v)) <= (v - B / 2) * (v * (2 - v))) by (apply Rmult_le_compat_r; [apply Rmult_le_pos|]; lra).
  assert (B * (b + M) <= B * (2 - p - B / 4)) by (apply Rmult_le_compat_l; lra).
  assert (F : v * (4 - v) <= 4) by nra. assert (0 <= v * (4 - v)) by (apply Rmult_le_pos; lra).
  assert (G : v * (4 - v) * (v * (4 - v)) <= 16) by nra.
  rewrite <- V in *. nra.
Qed.

(* Two views about the mean: the diagonal and C between them move by no more than C between them alone may.
   Rows are (x, y) of d and e columns, the mean of the others is (m, n). *)
Lemma squares_and_sums d z : 2 * sum d (fun i => z i ^ 2) <= sum d (fun i => Rabs (z i)) ^ 2 + sum d z ^ 2.
Proof.
  (* positive and negative parts *)
  induction d as [|d IH]; cbn [sum]; [lra|].
  set (A := sum d (fun i => Rabs (z i))) in *. set (S := sum d z) in *.
  assert (Rabs S <= A).
  { unfold S, A. clear. induction d as [|d IH]; simpl; [rewrite Rabs_R0; lra|].
    eapply Rle_trans; [apply Rabs_triang|]. lra. }
  assert (Q : Rabs (z d) * Rabs (z d) = z d * z d) by (rewrite <- Rabs_mult; apply Rabs_right, Rle_ge, Rle_0_sqr).
  assert (0 <= A * Rabs (z d) + S * z d); [|lra].
  assert (- (S * z d) <= A * Rabs (z d)); [|lra].
  apply Rle_trans with (Rabs (- (S * z d))); [apply Rle_abs|]. rewrite Rabs_Ropp, Rabs_mult.
  apply Rmult_le_compat_r; [apply Rabs_pos | assumption].
Qed.

Lemma diagonal_change d x x' m : let s := scalars_of d x x' m in
  diagonal d (difference (outer x x) (outer x' x')) <= 2 * (b_ s * B_ s + P_ s * P_ s).
Proof.
  simpl. set (w := mean x x'). set (u := minus x x').
  unfold diagonal. rewrite (sum_ext d _ (fun i => 4 * (w i * u i) ^ 2)).
  2: { intros. unfold difference, outer, w, u, mean, minus. field. }
  rewrite sum_times. pose proof (squares_and_sums d (fun i => w i * u i)) as H.
  pose proof (cauchy_schwarz d (fun i => Rabs (w i)) (fun i => Rabs (u i))) as C.
  assert (A : forall z, squared d (fun i => Rabs (z i)) = squared d z).
  { intros. apply sum_ext. intros. rewrite <- Rabs_mult. apply Rabs_right, Rle_ge, Rle_0_sqr. }
  rewrite !A in C. unfold dot in C |- *.
  rewrite (sum_ext d (fun i => Rabs (w i) * Rabs (u i)) (fun i => Rabs (w i * u i))) in C by (intros; now rewrite Rabs_mult).
  lra.
Qed.

(* One view: w, u, m by their lengths o, v, n. *)
Definition lengths b B P R D M o v n :=
  0 <= o /\ 0 <= v /\ 0 <= n /\ o * o = b /\ v * v = B /\ n * n = M /\
  Rabs P <= o * v /\ Rabs R <= n * v /\ b - 2 * D + M <= (o + n) * (o + n).

Lemma lengths_of d x x' m : let s := scalars_of d x x' m in exists o v n,
  lengths (b_ s) (B_ s) (P_ s) (R_ s) (D_ s) (M_ s) o v n.
Proof.
  pose proof (inequalities d x x' m) as I. cbv zeta in *. destruct I as (b0 & B0 & M0 & HP & HR & HD & _).
  destruct (scalars_of d x x' m) as [b B P R D M]. simpl in *.
  exists (sqrt b), (sqrt B), (sqrt M). pose proof (sqrt_sqrt b b0) as Eb. pose proof (sqrt_sqrt B B0) as EB. pose proof (sqrt_sqrt M M0) as EM.
  pose proof (sqrt_pos b). pose proof (sqrt_pos B). pose proof (sqrt_pos M).
  set (o := sqrt b) in *. set (v := sqrt B) in *. set (n := sqrt M) in *.
  assert (abs : forall z a c, 0 <= a -> 0 <= c -> z * z <= a * a * (c * c) -> Rabs z <= a * c).
  { intros z a c A C Z. apply square_le; [now apply Rmult_le_pos|]. rewrite <- Rabs_mult, Rabs_right by apply Rle_ge, Rle_0_sqr. lra. }
  unfold lengths. repeat split; trivial.
  - apply abs; trivial. now rewrite Eb, EB.
  - apply abs; trivial. now rewrite EM, EB.
  - pose proof (abs D o n H H1 ltac:(now rewrite Eb, EM)) as A. pose proof (Rle_abs (- D)) as L. rewrite Rabs_Ropp in L. lra.
Qed.

Lemma two_views_scalars b1 B1 P1 R1 D1 M1 o1 v1 n1 b2 B2 P2 R2 D2 M2 o2 v2 n2 :
  lengths b1 B1 P1 R1 D1 M1 o1 v1 n1 -> lengths b2 B2 P2 R2 D2 M2 o2 v2 n2 -> M1 + M2 <= 1 ->
  (b1 + b2) + (B1 + B2) / 4 + (P1 + P2) <= 1 -> (b1 + b2) + (B1 + B2) / 4 - (P1 + P2) <= 1 ->
  2 * (b1 * B1 + P1 * P1) + 2 * (b2 * B2 + P2 * P2)
  + 2 * ((b1 - 2 * D1 + M1) * B2 + (b2 - 2 * D2 + M2) * B1 + 2 * ((P1 - R1) * (P2 - R2))) <= 27 / 2.
Proof.
  intros (o10 & v10 & n10 & <- & <- & <- & p1 & r1 & a1) (o20 & v20 & n20 & <- & <- & <- & p2 & r2 & a2) M H1 H2.
  set (bb := o1 * o1 + o2 * o2) in *. set (b := sqrt bb). set (VV := v1 * v1 + v2 * v2) in *. set (v := sqrt VV).
  assert (bb0 : 0 <= bb) by (unfold bb; nra). assert (VV0 : 0 <= VV) by (unfold VV; nra).
  assert (Eb : b * b = bb) by now apply sqrt_sqrt. assert (Ev : v * v = VV) by now apply sqrt_sqrt.
  assert (b0 : 0 <= b) by apply sqrt_pos. assert (v0 : 0 <= v) by apply sqrt_pos.
  set (P := P1 + P2) in *. set (R := R1 + R2). set (p := Rabs P).
  assert (p0 : 0 <= p) by apply Rabs_pos.
  assert (pp : p * p = P * P) by (unfold p; rewrite <- Rabs_mult; apply Rabs_right, Rle_ge, Rle_0_sqr).
  assert (H : bb + VV / 4 + p <= 1) by (unfold p, Rabs; destruct Rcase_abs; lra).
  (* what two views have together, by Cauchy and Schwarz in the plane *)
  assert (cs : forall a c e f, 0 <= a -> 0 <= c -> 0 <= e -> 0 <= f -> forall g h, 0 <= g -> 0 <= h ->
    a * a + c * c <= g * g -> e * e + f * f <= h * h -> a * e + c * f <= g * h).
  { intros. apply square_le; [now apply Rmult_le_pos|].
    assert (0 <= (a * f - c * e) * (a * f - c * e)) by apply Rle_0_sqr.
    apply Rle_trans with ((a * a + c * c) * (e * e + f * f)); [lra|].
    replace (g * h * (g * h)) with (g * g * (h * h)) by ring. apply Rmult_le_compat; nra. }
  assert (on : o1 * n1 + o2 * n2 <= b * 1) by (apply cs; trivial; unfold bb in *; lra).
  assert (ov : o1 * v1 + o2 * v2 <= b * v) by (apply cs; trivial; unfold bb, VV in *; lra).
  assert (nv : n1 * v1 + n2 * v2 <= 1 * v) by (apply cs; trivial; unfold VV in *; lra).
  assert (pb : p <= b * v) by (unfold p, P; eapply Rle_trans; [apply Rabs_triang | lra]).
  assert (rv : Rabs R <= v) by (unfold R; eapply Rle_trans; [apply Rabs_triang | lra]).
  assert (v2' : v <= 2) by nra.
  (* the first step: products across views *)
  assert (S1 : (o1 - 0 + n1) * (o1 + n1) + (o2 + n2) * (o2 + n2) <= (1 + b) * (1 + b)) by (unfold bb in *; lra).
  assert (X1 : (o1 * o1 - 2 * D1 + n1 * n1) * (v2 * v2) <= (o1 + n1) * (o1 + n1) * (v2 * v2)) by (apply Rmult_le_compat_r; [apply Rle_0_sqr | trivial]).
  assert (X2 : (o2 * o2 - 2 * D2 + n2 * n2) * (v1 * v1) <= (o2 + n2) * (o2 + n2) * (v1 * v1)) by (apply Rmult_le_compat_r; [apply Rle_0_sqr | trivial]).
  assert (X3 : ((o1 + n1) * (o1 + n1) + (o2 + n2) * (o2 + n2)) * VV <= (1 + b) * (1 + b) * VV) by (apply Rmult_le_compat_r; [trivial | lra]).
  assert (pr : forall P R o n w, 0 <= w -> 0 <= o -> Rabs P <= o * w -> Rabs R <= n * w -> P * R <= o * n * (w * w)).
  { intros x y o n w w0 o0 Hx Hy. apply Rle_trans with (Rabs (x * y)); [apply Rle_abs|]. rewrite Rabs_mult.
    apply Rle_trans with (o * w * (n * w)); [|lra]. apply Rmult_le_compat; trivial; apply Rabs_pos. }
  pose proof (pr P1 R1 o1 n1 v1 v10 o10 p1 r1) as PR1. pose proof (pr P2 R2 o2 n2 v2 v20 o20 p2 r2) as PR2.
  pose proof (pr R1 R1 n1 n1 v1 v10 n10 r1 r1) as RR1. pose proof (pr R2 R2 n2 n2 v2 v20 n20 r2 r2) as RR2.
  assert (R12 : 2 * (R1 * R2) <= R1 * R1 + R2 * R2) by (pose proof (Rle_0_sqr (R1 - R2)) as Z; unfold Rsqr in Z; lra).
  apply Rle_trans with (2 * ((1 + b) * (1 + b) * VV) + 2 * (P * P) - 4 * (P * R)).
  { unfold P, R, VV in *. lra. }
  (* the second: one number, b *)
  assert (PR : - (P * R) <= p * 2).
  { apply Rle_trans with (Rabs (- (P * R))); [apply Rle_abs|]. rewrite Rabs_Ropp, Rabs_mult. fold p.
    apply Rmult_le_compat_l; lra. }
  assert (PP : P * P <= p * (2 * b)).
  { rewrite <- pp. apply Rmult_le_compat_l; trivial. assert (b * v <= b * 2) by (apply Rmult_le_compat_l; trivial). lra. }
  assert (Q : (1 + b) * (1 + b) * VV <= (1 + b) * (1 + b) * (4 * (1 - b * b - p))) by (apply Rmult_le_compat_l; [apply Rle_0_sqr | lra]).
  assert (0 <= p * (b * b)) by (apply Rmult_le_pos; [trivial | apply Rle_0_sqr]).
  assert (0 <= p * b) by (apply Rmult_le_pos; trivial).
  assert (F : 0 <= (b - 1 / 2) * (b - 1 / 2) * (8 * (b * b) + 24 * b + 22)).
  { apply Rmult_le_pos; [apply Rle_0_sqr | nra]. }
  lra.
Qed.

Lemma one_row_of_two_views d e x y m n :
  squared d x + squared e y <= 1 -> squared d m + squared e n <= 1 ->
  diagonal d (outer x x) + diagonal e (outer y y) + 2 * frobenius d e (outer (minus x m) (minus y n)) <= 17 / 2.
Proof.
  intros X M. rewrite frobenius_outer, !squared_minus.
  assert (Q : forall d x, diagonal d (outer x x) <= squared d x * squared d x).
  { intros. pose proof (parts d0 (fun _ => 0%nat) (outer x0 x0)). pose proof (nonneg_parts d0 (fun _ => 0%nat) (outer x0 x0)).
    rewrite frobenius_outer in H. lra. }
  pose proof (Q d x). pose proof (Q e y). clear Q.
  pose proof (cauchy_schwarz d x m) as C1. pose proof (cauchy_schwarz e y n) as C2.
  pose proof (squared_minus d x m) as N1. pose proof (squared_minus e y n) as N2.
  pose proof (squared_nonneg d (minus x m)). pose proof (squared_nonneg e (minus y n)). rewrite N1 in H1. rewrite N2 in H2.
  pose proof (squared_nonneg d x) as a0. pose proof (squared_nonneg e y) as b0.
  pose proof (squared_nonneg d m) as s0. pose proof (squared_nonneg e n) as t0.
  set (a := sqrt (squared d x)). set (b := sqrt (squared e y)). set (s := sqrt (squared d m)). set (t := sqrt (squared e n)).
  assert (Ea : a * a = squared d x) by now apply sqrt_sqrt. assert (Eb : b * b = squared e y) by now apply sqrt_sqrt.
  assert (Es : s * s = squared d m) by now apply sqrt_sqrt. assert (Et : t * t = squared e n) by now apply sqrt_sqrt.
  assert (0 <= a) by apply sqrt_pos. assert (0 <= b) by apply sqrt_pos. assert (0 <= s) by apply sqrt_pos. assert (0 <= t) by apply sqrt_pos.
  assert (K1 : squared d x + squared d m - 2 * dot d x m <= (a + s) * (a + s)).
  { pose proof (dot_le d (fun i => - x i) m a s) as L. unfold squared at 1 in L. rewrite !dot_opposite, (dot_sym d x), dot_opposite in L.
    unfold squared in *. lra. }
  assert (K2 : squared e y + squared e n - 2 * dot e y n <= (b + t) * (b + t)).
  { pose proof (dot_le e (fun i => - y i) n b t) as L. unfold squared at 1 in L. rewrite !dot_opposite, (dot_sym e y), dot_opposite in L.
    unfold squared in *. lra. }
  rewrite <- Ea, <- Eb in *. rewrite <- Es, <- Et in *.
  assert (K : (a * a + s * s - 2 * dot d x m) * (b * b + t * t - 2 * dot e y n) <= (a + s) * (a + s) * ((b + t) * (b + t)))
    by (apply Rmult_le_compat; trivial).
  assert (ab : 2 * (a * b) <= 1) by (pose proof (Rle_0_sqr (a - b)) as Z; unfold Rsqr in Z; lra).
  assert (st : 2 * (s * t) <= 1) by (pose proof (Rle_0_sqr (s - t)) as Z; unfold Rsqr in Z; lra).
  assert (cross : a * t + b * s <= 1).
  { pose proof (Rle_0_sqr (a - t)) as Z. pose proof (Rle_0_sqr (b - s)) as Z'. unfold Rsqr in *. lra. }
  assert (G : (a + s) * (b + t) <= a * b + 3 / 2) by lra.
  assert (0 <= a * b) by (apply Rmult_le_pos; trivial). assert (0 <= (a + s) * (b + t)) by (apply Rmult_le_pos; lra).
  assert (G2 : (a + s) * (b + t) * ((a + s) * (b + t)) <= (a * b + 3 / 2) * (a * b + 3 / 2)) by (apply Rmult_le_compat; trivial).
  assert ((a * a + b * b) * (a * a + b * b) <= 1) by nra. lra.
Qed.

